"""Share global limits among the live workers: what this one may still start of each model and environment."""

from collections import Counter
from typing import NamedTuple

from django.utils import timezone

from apps.environments.probing import is_held_back
from apps.rollouts.breaking import Endpoint, Shut, take_trial
from apps.rollouts.claiming import Claim, Slots
from apps.rollouts.models import Collection
from apps.rollouts.running import Setting


class Share(NamedTuple):
    """Which part of every global limit is this worker's: the parts of all live workers add up to the limit."""

    rank: int
    workers: int

    @classmethod
    def of(cls, lease: int, live: list[int]) -> "Share":
        return cls(live.index(lease), len(live)) if lease in live else cls(0, max(1, len(live)))

    def part(self, limit: int) -> int:
        return limit // self.workers + (self.rank < limit % self.workers)


class InUse:
    """How many of this worker's rollouts run, by policy model, environment and collection, and what it asks judges."""

    def __init__(
        self,
        running: list[tuple[Claim, Setting]],
        *,
        lease: int,
        live: list[tuple[int, str]],
        group: str = "",
        asked: Counter[int] | None = None,
    ) -> None:
        """`live` are the workers that claim, this one among them, with their groups; `asked` are questions to judges by
        model, which take its room as rollouts do."""
        self.lease = lease
        self.live = live
        self.group = group
        self.running = len(running)
        self.suspects = sum(claim.lost > 0 for claim, _ in running)
        self.alone = any(claim.lost > 1 for claim, _ in running)
        self.attempting = Counter(setting.policy_model_id for _, setting in running)
        self.models = self.attempting + (asked or Counter())
        self.environments = Counter(setting.environment_id for _, setting in running)
        self.collections = Counter(claim.collection_id for claim, _ in running)
        self.judge_rooms: dict[int, int] = {}
        """This worker's part of each judge's concurrency, known once slots were asked for."""

    def slots(self, seats: int, shut: dict[Endpoint, Shut]) -> Slots:
        """What is left of every limit; limits are global, so a worker takes its share of them.

        An endpoint whose breaker is open has no slots, but for one where this worker wins the right to try it. An
        environment whose server was found unwell has none until it is found well.
        """
        models, environments, collections = Limits(), Limits(), Limits()
        judged: dict[int, set[int]] = {}
        unwell: set[int] = set()
        now = timezone.now()
        for row in Collection.objects.filter(state=Collection.State.RUNNING).values_list(*_LIMITS).order_by():
            pk, concurrency, model, of_model, model_group, environment, of_environment, environment_group = row[:8]
            group = model_group or environment_group
            models.add(model, of_model, group)
            environments.add(environment, of_environment, group)
            judge, of_judge, adapter, health, checked_at = row[8:]
            if is_held_back(adapter, health, checked_at, now):
                unwell.add(environment)
            if judge is not None:
                models.add(judge, of_judge, group)
                judged.setdefault(judge, set()).add(environment)
            if concurrency is not None:
                collections.add(pk, concurrency, group)
        models_left, environments_left = self._left(models, self.models), self._left(environments, self.environments)
        for judge_pk, environment_pks in judged.items():
            room = self._share(models.groups[judge_pk]).part(models.numbers[judge_pk])
            self.judge_rooms[judge_pk] = room
            if room == 0:
                # What this worker has no part in judging, it leaves to those that have.
                environments_left.update(dict.fromkeys(environments_left.keys() & environment_pks, 0))
        environments_left.update(dict.fromkeys(unwell & environments_left.keys(), 0))
        self._hold_back(shut, judged, models_left, environments_left)
        return Slots(
            seats,
            models_left,
            environments_left,
            self._left(collections, self.collections),
            running=self.running,
            suspects=self.suspects,
            alone=self.alone,
            yields=self._share({self.group}).rank == 0,
            group=self.group,
        )

    def _hold_back(
        self,
        shut: dict[Endpoint, Shut],
        judged: dict[int, set[int]],
        models_left: dict[int, int],
        environments_left: dict[int, int],
    ) -> None:
        """Nothing is left of what is shut, and of what a judge that is shut would have to score; or one, as a trial."""
        for endpoint, state in shut.items():
            if endpoint.kind == "environment":
                held = [(environments_left, endpoint.pk)]
            else:
                held = [(models_left, endpoint.pk)]
                held += [(environments_left, pk) for pk in judged.get(endpoint.pk, ())]
            held = [(left, pk) for left, pk in held if pk in left]
            trial = state.due and any(left[pk] > 0 for left, pk in held) and take_trial(endpoint, state)
            for left, pk in held:
                left[pk] = min(left[pk], int(trial))

    def _left(self, limits: "Limits", used: Counter[int]) -> dict[int, int]:
        """Of what this worker's group may use; an endpoint that several groups use is shared by all their workers."""
        return {
            pk: self._share(groups).part(limits.numbers[pk]) - used[pk]
            for pk, groups in limits.groups.items()
            if self.group in groups
        }

    def _share(self, groups: set[str]) -> Share:
        return Share.of(self.lease, [worker for worker, group in self.live if group in groups])


_LIMITS = (
    "pk",
    "concurrency",
    "policy_model_id",
    "policy_model__concurrency",
    "policy_model__worker_group",
    "environment_id",
    "environment__concurrency",
    "environment__worker_group",
    "environment__judge_model_id",
    "environment__judge_model__concurrency",
    "environment__adapter",
    "environment__health",
    "environment__health_checked_at",
)


class Limits:
    """Limits of rollouts in flight by id, and which groups of workers use what they are of."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.groups: dict[int, set[str]] = {}

    def add(self, pk: int, number: int, group: str) -> None:
        self.numbers[pk] = number
        self.groups.setdefault(pk, set()).add(group)
