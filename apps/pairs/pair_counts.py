"""Apply a rule to collections: build pairs, and count the outcomes of groups and rollouts.

Live counts, previews and pair sets share this code, so previewed counts match the result.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from apps.gym.pairs.pair_making import needed_courses, pair_group, settle_by_rewards
from apps.gym.pairs.pair_rule import OUTCOMES, Attempt, Pair, Rule, Source, find_exclusion
from apps.gym.traces.courses import course_of
from apps.gym.training_ledger import Ledger
from apps.pairs.human_verdicts import override_rewards, read_rollout_verdicts
from apps.pairs.task_attempts import TaskGroup, read_task_groups
from apps.pairs.trace_reader import read_traces
from apps.rollouts.models import Collection

LIVE_SECONDS = 1.5
"""Seconds that a page waits for counts; larger counts are computed during the build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPair:
    """A pair with its sides and the task of its group."""

    task_id: int
    pair: Pair
    chosen: Attempt
    rejected: Attempt


class OutOfTime(Exception):
    """Raised to stop at a time limit."""


class PairMaker:
    """Build pairs while `chunks()` is iterated. The counts cover the groups read so far.

    `on_step` is called regularly, also within a group, and may raise. If it raises OutOfTime, iteration ends and
    `whole` becomes False.
    """

    def __init__(
        self, collections: Sequence[Collection], rule: Rule, *, on_step: Callable[[], None] = lambda: None
    ) -> None:
        self._collections = collections
        self._rule = rule
        self._on_step = on_step
        self.whole = True
        self.groups: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self.ledger = Ledger()
        """Counts the unused rollouts."""
        self.sources: Counter[Source] = Counter()

    def chunks(self) -> Iterator[list[NewPair]]:
        """Yield lists of pairs, one for each chunk of tasks, sorted by task and then in the order of the rule."""
        for task_groups in read_task_groups(self._collections):
            yield self._pair(task_groups)
            if not self.whole:
                return

    def _pair(self, task_groups: list[TaskGroup]) -> list[NewPair]:
        judged = read_rollout_verdicts([one for task_group in task_groups for one in task_group.numbers])
        if self._rule.reward_from == "override":
            override_rewards(task_groups)
        wanted: dict[int, int] = {}
        for task_group in task_groups:
            verdicts = judged.of(task_group.numbers)
            if settle_by_rewards(task_group.attempts, self._rule, verdicts) is None:
                needed = needed_courses(task_group.attempts, self._rule, verdicts)
                wanted.update((one, task_group.numbers[one]) for one in needed)
        courses = {rollout_id: course_of(events) for rollout_id, events in read_traces(wanted)}
        found: list[NewPair] = []
        for task_group in task_groups:
            verdicts = judged.of(task_group.numbers)
            try:
                made = pair_group(task_group.attempts, courses, self._rule, verdicts, on_step=self._on_step)
            except OutOfTime:
                self.whole = False
                break
            self.groups[made.outcome] += 1
            self.ledger.considered += len(task_group.attempts)
            # An attempt that the rule excludes can still be in a pair by verdict.
            used = {side for pair in made.pairs for side in (pair.chosen, pair.rejected)}
            for one in task_group.attempts:
                if one.id not in used and (reason := find_exclusion(one, self._rule)):
                    self.ledger.drop(reason)
            self.sources.update(pair.source for pair in made.pairs)
            sides = {one.id: one for one in task_group.attempts}
            found += [
                NewPair(task_id=task_group.task_id, pair=pair, chosen=sides[pair.chosen], rejected=sides[pair.rejected])
                for pair in made.pairs
            ]
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCounts:
    """Counts of a rule. If `whole` is False, they cover only the first `considered` of `total` rollouts."""

    pairs: int
    groups: dict[str, int]
    excluded: dict[str, int]
    sources: dict[str, int]
    considered: int
    total: int
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPreview:
    counts: PairCounts
    pairs: list[NewPair]


def count_pairs(
    collections: Sequence[Collection], rule: Rule, *, seconds: float | None = LIVE_SECONDS, max_pairs: int = 0
) -> PairPreview:
    """Count pairs without storing them, for at most `seconds` (None: no limit). Return the first `max_pairs`."""
    until = None if seconds is None else time.monotonic() + seconds

    def check_time() -> None:
        if until is not None and time.monotonic() > until:
            raise OutOfTime

    maker = PairMaker(collections, rule, on_step=check_time)
    kept: list[NewPair] = []
    for found in maker.chunks():
        kept += found[: max(0, max_pairs - len(kept))]
        if until is not None and time.monotonic() > until:
            maker.whole = False
            break
    total = sum(one.total for one in collections)
    counts = PairCounts(
        pairs=maker.sources.total(),
        groups=dict(maker.groups),
        excluded=maker.ledger.counts(),
        sources=dict(sorted(maker.sources.items())),
        considered=maker.ledger.considered,
        total=max(total, maker.ledger.considered),
        whole=maker.whole or maker.ledger.considered >= total > 0,
    )
    return PairPreview(counts=counts, pairs=kept)
