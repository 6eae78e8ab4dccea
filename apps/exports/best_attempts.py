"""Choose the best attempts at each task until it has enough rows."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence

from apps.exports.export_selection import Candidate, Chosen

Candidates = dict[int, tuple[Chosen, Candidate]]
"""Candidates by rollout id."""


class AttemptRounds:
    """Rounds of candidates. Candidates that yielded no row are replaced by the next best in the following round.

    `max_rows` is the maximum number of rows per task; None: no limit.
    """

    def __init__(self, chunk: Sequence[Chosen], *, max_rows: int | None) -> None:
        self._max_rows = max_rows
        self._waiting = [(chosen, list(reversed(chosen.rollouts))) for chosen in chunk]
        self._written: Counter[int] = Counter()

    @property
    def left(self) -> int:
        return sum(len(waiting) for _, waiting in self._waiting)

    def take(self) -> Candidates:
        """Return the next candidates of each task that needs more rows. Empty at the end."""
        taken: Candidates = {}
        for chosen, waiting in self._waiting:
            missing = len(waiting) if self._max_rows is None else self._max_rows - self._written[chosen.task.pk]
            for _ in range(min(missing, len(waiting))):
                rollout = waiting.pop()
                taken[rollout.id] = (chosen, rollout)
        return taken

    def wrote(self, task_id: int) -> None:
        self._written[task_id] += 1

    def defer_duplicates(
        self, picked: Candidates, fingerprints: Mapping[int, str], written: Container[tuple[int, str]]
    ) -> list[tuple[Candidate, tuple[int, str]]]:
        """Remove duplicates from a round.

        A duplicate of a better attempt in the round waits until that one is written or dropped. Duplicates of written
        attempts are returned with their (task id, fingerprint).
        """
        best: set[tuple[int, str]] = set()
        deferred: list[int] = []
        duplicates: list[tuple[Candidate, tuple[int, str]]] = []
        for rollout_id, (chosen, rollout) in picked.items():
            fingerprint = (chosen.task.pk, fingerprints[rollout_id])
            if fingerprint in written:
                duplicates.append((rollout, fingerprint))
            elif fingerprint[1] and fingerprint in best:
                deferred.append(rollout_id)
            best.add(fingerprint)
        for rollout, _ in duplicates:
            del picked[rollout.id]
        waiting = {chosen.task.pk: held for chosen, held in self._waiting}
        for rollout_id in reversed(deferred):
            chosen, rollout = picked.pop(rollout_id)
            waiting[chosen.task.pk].append(rollout)
        return duplicates
