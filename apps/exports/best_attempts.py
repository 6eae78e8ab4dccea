"""Choose the best attempts at each task until it has enough rows."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence

from apps.exports.export_selection import Candidate, Chosen

Picked = dict[int, tuple[Chosen, Candidate]]
"""Candidates by rollout id."""


class Picks:
    """Rounds of `take()`: candidates that became no row are replaced by the next best in the following round."""

    def __init__(self, chunk: Sequence[Chosen], *, most: int | None) -> None:
        self._most = most
        self._waiting = [(chosen, list(reversed(chosen.rollouts))) for chosen in chunk]
        self._written: Counter[int] = Counter()

    @property
    def left(self) -> int:
        return sum(len(waiting) for _, waiting in self._waiting)

    def take(self) -> Picked:
        """Return the next candidates of each task that still needs rows; empty if there are none."""
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
        """Remove attempts that equal a better attempt of the round.

        They wait until the better attempt is written or dropped. Attempts that equal a written one are returned with
        their actions.
        """
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
