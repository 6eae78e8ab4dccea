"""Limits across all workers: how many rollouts this worker may start for each model and environment."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from django.utils import timezone

from apps.environments.environment_health import is_held_back
from apps.rollouts.engine.circuit_breakers import Endpoint, Shut, take_trial
from apps.rollouts.engine.claiming import Claim, Slots
from apps.rollouts.engine.collection_limits import Budget, room_in_budget
from apps.rollouts.engine.running import Setting
from apps.rollouts.engine.running_collections import RunningCollection, read_running
from apps.rollouts.models import Collection


class Share(NamedTuple):
    """This worker's share of a global limit: the shares of all live workers add up to the limit.

    Used only for judge calls, which have no rows that other workers could count.
    """

    rank: int
    workers: int

    @classmethod
    def of(cls, lease: int, live: list[int]) -> "Share":
        return cls(live.index(lease), len(live)) if lease in live else cls(0, max(1, len(live)))

    def part(self, limit: int) -> int:
        return limit // self.workers + (self.rank < limit % self.workers)


class InUse:
    """What this worker uses now.

    Counts running rollouts by policy model, environment and collection, and judge calls.
    """

    def __init__(
        self,
        running: list[tuple[Claim, Setting]],
        *,
        lease: int,
        live: list[tuple[int, str]],
        group: str = "",
        asked: Counter[int] | None = None,
        unstored: Mapping[int, int] | None = None,
        claimable: Mapping[Endpoint, int] | None = None,
    ) -> None:
        """`live` are the claiming workers with their groups, including this one.

        `asked` counts judge calls by model; they use its concurrency as rollouts do. `unstored` counts finished
        rollouts by collection that are not in the database yet, so no budget includes them. `claimable` bounds claims
        for endpoints that throttle.
        """
        self.lease = lease
        self.live = live
        self.group = group
        self.running = len(running)
        self.suspects = sum(claim.lost > 0 for claim, _ in running)
        self.alone = any(claim.lost > 1 for claim, _ in running)
        self.attempting = Counter(setting.policy_model_id for _, setting in running)
        self._asked = asked or Counter()
        self.models = self.attempting + self._asked
        self.environments = Counter(setting.environment_id for _, setting in running)
        self.collections = Counter(claim.collection_id for claim, _ in running)
        self.judge_rooms: dict[int, int] = {}
        """This worker's share of each judge's concurrency, known after slots were requested."""
        self.awaits_results = False
        """True if unstored results keep a collection with a budget from continuing."""
        self._unstored = unstored or {}
        self._claimable = claimable or {}
        self._trials: dict[Endpoint, set[int]] = {}

    def slots(
        self,
        seats: int,
        shut: dict[Endpoint, Shut],
        elsewhere: Mapping[int, int] | None = None,
        running: list[RunningCollection] | None = None,
    ) -> Slots:
        """Return the remaining limits. `elsewhere` is the number of rollouts per collection on other workers.

        Limits are global and not divided between workers: a share would be idle while its worker has no free seat,
        and the shares would be wrong whenever a worker starts or stops. An endpoint with an open breaker has no slots,
        or one if a test is due. An environment with an unhealthy server has none. `running` are the running
        collections, read here if absent.
        """
        running = read_running() if running is None else running
        self._trials = {}
        models, environments, collections = Limits(), Limits(), Limits()
        used = self._used(elsewhere or {}, running)
        judged: dict[int, set[int]] = {}
        unwell: set[int] = set()
        now = timezone.now()
        for one in running:
            models.add(one.model, one.of_model, one.group)
            environments.add(one.environment, one.of_environment, one.group)
            for endpoint in (
                Endpoint("policy_model", one.model),
                Endpoint("environment", one.environment),
                Endpoint("policy_model", one.judge or 0),
            ):
                if endpoint in shut and shut[endpoint].due:
                    self._trials.setdefault(endpoint, set()).add(one.pk)
            if is_held_back(one.adapter, one.health, one.checked_at, now):
                unwell.add(one.environment)
            if one.judge is not None and one.of_judge is not None:
                models.add(one.judge, one.of_judge, one.group)
                judged.setdefault(one.judge, set()).add(one.environment)
            room = self._room(one.pk, one.concurrency, one.budget)
            if room is not None:
                collections.add(one.pk, room, one.group)
        models_left = self._left(models, used.models)
        environments_left = self._left(environments, used.environments)
        for judge_pk, environment_pks in judged.items():
            part = self._share(models.groups[judge_pk]).part(models.numbers[judge_pk])
            self.judge_rooms[judge_pk] = part
            if part == 0:
                # Without a share of the judge, this worker leaves the environments that it judges to other workers.
                environments_left.update(dict.fromkeys(environments_left.keys() & environment_pks, 0))
        environments_left.update(dict.fromkeys(unwell & environments_left.keys(), 0))
        bounds = {endpoint: int(state.due) for endpoint, state in shut.items()}
        for endpoint, number in self._claimable.items():
            bounds[endpoint] = min(number, bounds.get(endpoint, number))
        self._hold_back(bounds, judged, models_left, environments_left)
        return Slots(
            seats,
            models_left,
            environments_left,
            self._left(collections, used.collections),
            running=self.running,
            suspects=self.suspects,
            alone=self.alone,
            yields=self._share({self.group}).rank == 0,
            group=self.group,
            rooms=collections.numbers,
            asked=self._asked,
        )

    def _used(self, elsewhere: Mapping[int, int], running: list[RunningCollection]) -> "Used":
        """Return the rollouts of this worker and of others, also in collections that are paused by now."""
        used = Used(Counter(self.models), Counter(self.environments), Counter(self.collections))
        for one in running:
            used.add(elsewhere.get(one.pk, 0), one.model, one.environment, one.pk)
        if paused := elsewhere.keys() - {one.pk for one in running}:
            rows = Collection.objects.filter(pk__in=paused)
            for pk, model, environment in rows.values_list("pk", "policy_model_id", "environment_id"):
                used.add(elsewhere[pk], model, environment, pk)
        return used

    def _room(self, pk: int, concurrency: int | None, budget: Budget) -> int | None:
        """Return how many rollouts of a collection may be in flight, or None without a limit."""
        if not budget.is_limited:
            return concurrency
        unstored = self._unstored.get(pk, 0)
        self.awaits_results |= unstored > 0
        room = room_in_budget(budget) - unstored
        return room if concurrency is None else min(room, concurrency)

    def _hold_back(
        self,
        bounds: Mapping[Endpoint, int],
        judged: dict[int, set[int]],
        models_left: dict[int, int],
        environments_left: dict[int, int],
    ) -> None:
        """Reduce the free slots of each endpoint, and of the environments that it judges, to its bound."""
        for endpoint, bound in bounds.items():
            if endpoint.kind == "environment":
                held = [(environments_left, endpoint.pk)]
            else:
                held = [(models_left, endpoint.pk)]
                held += [(environments_left, pk) for pk in judged.get(endpoint.pk, ())]
            held = [(left, pk) for left, pk in held if pk in left]
            for left, pk in held:
                left[pk] = min(left[pk], bound)

    def take_trials(self, shut: dict[Endpoint, Shut], claimed: Iterable[int]) -> None:
        """Record the due breaker tests of the claimed collections.

        No other worker tests these endpoints until the next test is due.

        Call it only after claiming something: a test without a rollout would delay the next one.
        """
        for endpoint, collections in self._trials.items():
            if not collections.isdisjoint(claimed):
                take_trial(endpoint, shut[endpoint])

    def _left(self, limits: "Limits", used: Counter[int]) -> dict[int, int]:
        """Return the rest of each limit, restricted to the group of this worker."""
        return {pk: limits.numbers[pk] - used[pk] for pk, groups in limits.groups.items() if self.group in groups}

    def _share(self, groups: set[str]) -> Share:
        return Share.of(self.lease, [worker for worker, group in self.live if group in groups])


class Used(NamedTuple):
    """The number of running rollouts by model, environment and collection, over all workers."""

    models: Counter[int]
    environments: Counter[int]
    collections: Counter[int]

    def add(self, number: int, model: int, environment: int, collection: int) -> None:
        self.models[model] += number
        self.environments[environment] += number
        self.collections[collection] += number


class Limits:
    """Limits of rollouts in flight by id, and the worker groups that use each model or environment."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.groups: dict[int, set[str]] = {}

    def add(self, pk: int, number: int, group: str) -> None:
        self.numbers[pk] = number
        self.groups.setdefault(pk, set()).add(group)
