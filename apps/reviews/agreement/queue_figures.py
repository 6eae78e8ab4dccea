"""All figures of a queue, for pages, API and commands."""

import msgspec

from apps.reviews.agreement.queue_agreement import Agreement, Progress, read_agreement, read_progress
from apps.reviews.agreement.reviewer_figures import Reviewer, read_reviewers
from apps.reviews.agreement.verifier_agreement import OutsideAgreement, read_against_lengths, read_against_rewards
from apps.reviews.models import Queue


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    progress: Progress
    reviewers: list[Reviewer]
    agreement: list[Agreement]
    against_rewards: list[OutsideAgreement]
    against_lengths: list[OutsideAgreement]

    @property
    def could_see_results(self) -> int:
        """Return the number of reviews whose reviewer could see results."""
        return sum(each.could_see_results for each in self.reviewers)

    @property
    def seconds_left(self) -> float | None:
        """Estimate the remaining review time in seconds: missing reviews and hidden repeats times the median time
        per item.

        None if no review is missing or no time is known.
        """
        repeats = max(0, self.progress.repeats - sum(each.repeated for each in self.reviewers))
        left = self.progress.wanted - self.progress.reviews + repeats
        paces = [(each.seconds, each.submitted) for each in self.reviewers if each.seconds is not None]
        total = sum(number for _, number in paces)
        return left * sum(seconds * number for seconds, number in paces) / total if left > 0 and total else None


def read_figures(queue: Queue, *, could_see_results: bool | None = None) -> Figures:
    """Return all figures of a queue.

    `could_see_results` restricts the agreement to reviewers who could (True) or could not (False) see results.
    """
    return Figures(
        progress=read_progress(queue),
        reviewers=read_reviewers(queue),
        agreement=read_agreement(queue, could_see_results=could_see_results),
        against_rewards=read_against_rewards(queue, could_see_results=could_see_results),
        against_lengths=read_against_lengths(queue, could_see_results=could_see_results),
    )
