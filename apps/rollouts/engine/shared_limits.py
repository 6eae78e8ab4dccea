"""Compute how many rollouts this worker may start, from limits that all workers share."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from django.utils import timezone

from apps.environments.environment_health import is_held_back
from apps.rollouts.engine.circuit_breakers import Endpoint, OpenBreaker, claim_breaker_test
from apps.rollouts.engine.claiming import Claim, Slots
from apps.rollouts.engine.collection_limits import Budget, rollouts_within_budget
from apps.rollouts.engine.running import Setting
from apps.rollouts.engine.running_collections import RunningCollection, read_running
from apps.rollouts.models import Collection


class Share(NamedTuple):
    """This worker's share of a global limit. The shares of all claiming workers add up to the limit.

    Limits are shared out only for judge calls: they are not in the database, so workers cannot count those of other
    workers. `rank` also decides which worker makes room for a quarantined rollout.
    """

    rank: int
    workers: int

    @classmethod
    def of(cls, lease: int, claiming: list[int]) -> "Share":
        return cls(claiming.index(lease), len(claiming)) if lease in claiming else cls(0, max(1, len(claiming)))

    def part(self, limit: int) -> int:
        return limit // self.workers + (self.rank < limit % self.workers)


class InUse:
    """Current usage of this worker: running rollouts by model, environment and collection id, and judge calls."""

    def __init__(
        self,
        running: list[tuple[Claim, Setting]],
        *,
        lease: int,
        claiming: list[tuple[int, str]],
        group: str = "",
        judge_calls: Counter[int] | None = None,
        unstored: Mapping[int, int] | None = None,
        claimable: Mapping[Endpoint, int] | None = None,
        failing: frozenset[int] = frozenset(),
    ) -> None:
        """Count the running rollouts.

        `claiming` has (worker id, group) of all claiming workers, including this one. `judge_calls` counts judge calls
        by model id, which count towards the concurrency of the model. `unstored` counts finished rollouts by
        collection id whose usage is not in the database yet. `claimable` limits claims for throttled endpoints.
        `failing` are collections to claim last.
        """
        self.lease = lease
        self.claiming = claiming
        self.group = group
        self.running = len(running)
        self.suspects = sum(claim.lost > 0 for claim, _ in running)
        self.alone = any(claim.lost > 1 for claim, _ in running)
        self.rollouts_by_model = Counter(setting.policy_model_id for _, setting in running)
        self._judge_calls = judge_calls or Counter()
        self.models = self.rollouts_by_model + self._judge_calls
        self.environments = Counter(setting.environment_id for _, setting in running)
        self.collections = Counter(claim.collection_id for claim, _ in running)
        self.judge_shares: dict[int, int] = {}
        """This worker's share of each judge's concurrency, by model id. Set by `slots`."""
        self.awaits_results = False
        """True if a collection with a budget has results that are not stored yet. Set by `slots`."""
        self._unstored = unstored or {}
        self._claimable = claimable or {}
        self._failing = failing
        self._due_tests: dict[Endpoint, set[int]] = {}

    def slots(
        self,
        seats: int,
        open_breakers: dict[Endpoint, OpenBreaker],
        elsewhere: Mapping[int, int] | None = None,
        running: list[RunningCollection] | None = None,
    ) -> Slots:
        """Return the remaining limits. `elsewhere` counts the rollouts of other workers by collection id.

        Limits of rollouts are not divided between workers (those of judge calls are): shares of workers without a free
        seat would be idle, and shares would be wrong whenever a worker starts or stops. An open breaker leaves no slots
        to the collections that it holds, or one if a test is due. An environment with an unhealthy server has none.
        `running` are the running collections; by default they are read here.
        """
        running = read_running() if running is None else running
        self._due_tests = {}
        models, environments, collections = Limits(), Limits(), Limits()
        used = self._used(elsewhere or {}, running)
        judged: dict[int, set[int]] = {}
        unhealthy: set[int] = set()
        tests: dict[int, int] = {}
        held: dict[int, int] = {}
        free: set[Endpoint] = set()
        now = timezone.now()
        for one in running:
            models.add(one.model, one.model_limit, one.group)
            environments.add(one.environment, one.environment_limit, one.group)
            for endpoint in (
                Endpoint("policy_model", one.model),
                Endpoint("environment", one.environment),
                Endpoint("policy_model", one.judge or 0),
            ):
                if (breaker := open_breakers.get(endpoint)) is None:
                    continue
                if not breaker.holds(one.pk):
                    free.add(endpoint)
                    continue
                is_due = breaker.retry_at <= now
                held[one.pk] = min(held.get(one.pk, 1), int(is_due))
                if is_due:
                    self._due_tests.setdefault(endpoint, set()).add(one.pk)
                    tests[one.pk] = max(tests.get(one.pk, 0), breaker.tests.get(one.pk, 0))
            if is_held_back(one.adapter, one.health, one.checked_at, now):
                unhealthy.add(one.environment)
            if one.judge is not None and one.judge_limit is not None:
                models.add(one.judge, one.judge_limit, one.group)
                judged.setdefault(one.judge, set()).add(one.environment)
            max_in_flight = self._max_in_flight(one.pk, one.concurrency, one.budget)
            if max_in_flight is not None:
                collections.add(one.pk, max_in_flight, one.group)
        models_left = self._remaining(models, used.models)
        environments_left = self._remaining(environments, used.environments)
        for judge_pk, environment_pks in judged.items():
            part = self._share(models.groups[judge_pk]).part(models.numbers[judge_pk])
            self.judge_shares[judge_pk] = part
            if part == 0:
                # Without a share of the judge, this worker must not start rollouts that need it.
                environments_left.update(dict.fromkeys(environments_left.keys() & environment_pks, 0))
        environments_left.update(dict.fromkeys(unhealthy & environments_left.keys(), 0))
        bounds = {endpoint: int(endpoint in self._due_tests) for endpoint in open_breakers if endpoint not in free}
        for endpoint, number in self._claimable.items():
            bounds[endpoint] = min(number, bounds.get(endpoint, number))
        self._apply_bounds(bounds, judged, models_left, environments_left)
        collections_left = self._remaining(collections, used.collections)
        return Slots(
            seats,
            models_left,
            environments_left,
            collections_left | {pk: min(number, collections_left.get(pk, number)) for pk, number in held.items()},
            running=self.running,
            suspects=self.suspects,
            alone=self.alone,
            yields=self._share({self.group}).rank == 0,
            group=self.group,
            max_in_flight=collections.numbers,
            judge_calls=self._judge_calls,
            tests=tests,
            failing=self._failing,
        )

    def _used(self, elsewhere: Mapping[int, int], running: list[RunningCollection]) -> "Used":
        """Return the usage of all workers, including rollouts of collections that have been paused."""
        used = Used(Counter(self.models), Counter(self.environments), Counter(self.collections))
        for one in running:
            used.add(elsewhere.get(one.pk, 0), one.model, one.environment, one.pk)
        if paused := elsewhere.keys() - {one.pk for one in running}:
            rows = Collection.objects.filter(pk__in=paused)
            for pk, model, environment in rows.values_list("pk", "policy_model_id", "environment_id"):
                used.add(elsewhere[pk], model, environment, pk)
        return used

    def _max_in_flight(self, pk: int, concurrency: int | None, budget: Budget) -> int | None:
        """Return the maximum number of rollouts in flight of a collection, or None without a limit."""
        if not budget.is_limited:
            return concurrency
        unstored = self._unstored.get(pk, 0)
        self.awaits_results |= unstored > 0
        max_in_flight = rollouts_within_budget(budget) - unstored
        return max_in_flight if concurrency is None else min(max_in_flight, concurrency)

    def _apply_bounds(
        self,
        bounds: Mapping[Endpoint, int],
        judged: dict[int, set[int]],
        models_left: dict[int, int],
        environments_left: dict[int, int],
    ) -> None:
        """Limit the free slots of each endpoint, and of the environments that it judges, to its bound."""
        for endpoint, bound in bounds.items():
            if endpoint.kind == "environment":
                bounded = [(environments_left, endpoint.pk)]
            else:
                bounded = [(models_left, endpoint.pk)]
                bounded += [(environments_left, pk) for pk in judged.get(endpoint.pk, ())]
            bounded = [(left, pk) for left, pk in bounded if pk in left]
            for left, pk in bounded:
                left[pk] = min(left[pk], bound)

    def claim_breaker_tests(self, open_breakers: dict[Endpoint, OpenBreaker], claimed: Iterable[int]) -> None:
        """Claim the due breaker tests for the claimed collections, so that no other worker tests these endpoints.

        Call it only after a successful claim: without a rollout, the test is lost and the next one is due later.
        """
        for endpoint, collections in self._due_tests.items():
            for collection in collections.intersection(claimed):
                claim_breaker_test(endpoint, open_breakers[endpoint], collection)

    def _remaining(self, limits: "Limits", used: Counter[int]) -> dict[int, int]:
        """Return the rest of each limit that applies to the group of this worker."""
        return {pk: limits.numbers[pk] - used[pk] for pk, groups in limits.groups.items() if self.group in groups}

    def _share(self, groups: set[str]) -> Share:
        return Share.of(self.lease, [worker for worker, group in self.claiming if group in groups])


class Used(NamedTuple):
    """Usage of all workers by model, environment and collection id.

    It counts rollouts, and for models also the judge calls of this worker.
    """

    models: Counter[int]
    environments: Counter[int]
    collections: Counter[int]

    def add(self, number: int, model: int, environment: int, collection: int) -> None:
        self.models[model] += number
        self.environments[environment] += number
        self.collections[collection] += number


class Limits:
    """Limits of rollouts in flight by id, and the worker groups that use each model, environment or collection."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.groups: dict[int, set[str]] = {}

    def add(self, pk: int, number: int, group: str) -> None:
        self.numbers[pk] = number
        self.groups.setdefault(pk, set()).add(group)
