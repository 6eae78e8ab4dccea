"""Hand out the attempts at some tasks, best first, until each task has its rows."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence

from apps.exports.export_selection import Candidate, Chosen

Picked = dict[int, tuple[Chosen, Candidate]]
"""By rollout."""


class Picks:
    """Rounds of `take()`: what of a round became no row is replaced by the next best in the round after it."""

    def __init__(self, chunk: Sequence[Chosen], *, most: int | None) -> None:
        self._most = most
        self._waiting = [(chosen, list(reversed(chosen.rollouts))) for chosen in chunk]
        self._written: Counter[int] = Counter()

    @property
    def left(self) -> int:
        return sum(len(waiting) for _, waiting in self._waiting)

    def take(self) -> Picked:
        """As many of each task as it lacks; none where every task has enough, or has no more."""
        taken: Picked = {}
        for chosen, waiting in self._waiting:
            lacking = len(waiting) if self._most is None else self._most - self._written[chosen.task.pk]
            for _ in range(min(lacking, len(waiting))):
                rollout = waiting.pop()
                taken[rollout.id] = (chosen, rollout)
        return taken

    def wrote(self, task_id: int) -> None:
        self._written[task_id] += 1

    def put_off(
        self, picked: Picked, prints: Mapping[int, str], written: Container[tuple[int, str]]
    ) -> list[tuple[Candidate, tuple[int, str]]]:
        """Take those out of a round that did what a better one of it did: they wait for what becomes of that one. Those
        that did what is written already are gone, and handed back with what they did."""
        best: set[tuple[int, str]] = set()
        again: list[int] = []
        gone: list[tuple[Candidate, tuple[int, str]]] = []
        for rollout_id, (chosen, rollout) in picked.items():
            done = (chosen.task.pk, prints[rollout_id])
            if done in written:
                gone.append((rollout, done))
            elif done[1] and done in best:
                again.append(rollout_id)
            best.add(done)
        for rollout, _ in gone:
            del picked[rollout.id]
        waiting = {chosen.task.pk: held for chosen, held in self._waiting}
        for rollout_id in reversed(again):
            chosen, rollout = picked.pop(rollout_id)
            waiting[chosen.task.pk].append(rollout)
        return gone
