"""Decide whether a candidate collection is worse than a baseline: one-sided paired t-test over tasks."""

from dataclasses import dataclass
from typing import Literal, get_args

from apps.gym.metrics.clustered_intervals import MIN_TASKS
from apps.gym.metrics.paired_comparison import Interval, interval_from
from apps.gym.metrics.student_t import mean_below_zero
from apps.gym.setup_notices import SetupNotice
from apps.rollouts.metrics.collection_comparison import check_contrast, measure_pairs
from apps.rollouts.metrics.trainable_rollouts import read_setup_notices
from apps.rollouts.models import Collection

Verdict = Literal["pass", "fail", "undecided"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
MAX_MISSING = 0.1
"""Share of the baseline's tasks that may lack a reward in the candidate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """The verdict on a candidate, and the figures behind it. Differences are candidate minus baseline, by task.

    `p_value` is the probability of a difference this low if the true drop were `max_drop`; None with too few tasks.
    `notices` are the set-up notices of the candidate, `baseline_notices` those of the baseline: they do not change the
    verdict. `missing_tasks` are tasks with a reward in the baseline only.
    """

    verdict: Verdict
    reason: str
    tasks: int
    missing_tasks: int
    mean_reward: float | None
    baseline_mean_reward: float | None
    interval: Interval | None
    max_drop: float
    alpha: float
    p_value: float | None
    notices: list[SetupNotice]
    baseline_notices: list[SetupNotice]


def check_regression(candidate: Collection, baseline: Collection, *, max_drop: float, alpha: float) -> Gate:
    """Compare the mean rewards of the tasks of both. Raise CannotContrast for collections of different datasets.

    The candidate fails if its mean is lower by more than `max_drop` at the significance level `alpha`. Equal
    collections fail with probability `alpha`, or less if `max_drop` is above 0.
    """
    check_contrast(baseline, candidate)
    found = measure_pairs(baseline, candidate)
    missing = _count_tasks(baseline) - found.tasks
    p_value = (
        mean_below_zero(found.tasks, found.difference + max_drop, found.squares) if found.tasks >= MIN_TASKS else None
    )
    verdict, reason = _decide(candidate, baseline, tasks=found.tasks, missing=missing, p_value=p_value, alpha=alpha)
    return Gate(
        verdict=verdict,
        reason=reason,
        tasks=found.tasks,
        missing_tasks=missing,
        mean_reward=found.other_mean,
        baseline_mean_reward=found.mean,
        interval=interval_from(found.tasks, found.difference, found.squares) if found.tasks else None,
        max_drop=max_drop,
        alpha=alpha,
        p_value=p_value,
        notices=read_setup_notices(candidate),
        baseline_notices=read_setup_notices(baseline),
    )


def _decide(
    candidate: Collection, baseline: Collection, *, tasks: int, missing: int, p_value: float | None, alpha: float
) -> tuple[Verdict, str]:
    for each in (baseline, candidate):
        if not each.is_finished:
            return "undecided", f"{each.label} is {each.state}. Wait until it has finished."
    if p_value is None:
        return "undecided", f"{tasks} tasks have rewards in both collections. At least {MIN_TASKS} are needed."
    if missing > MAX_MISSING * (tasks + missing):
        return "undecided", (
            f"{missing:,} of {tasks + missing:,} tasks of the baseline have no reward in {candidate.label}. "
            "Retry its failed rollouts."
        )
    if p_value < alpha:
        return "fail", f"{candidate.label} is worse than {baseline.label} (p = {p_value:.2g})."
    return "pass", f"{candidate.label} is not significantly worse than {baseline.label} (p = {p_value:.2g})."


def _count_tasks(collection: Collection) -> int:
    return collection.rollouts.rewarded().order_by().values("task").distinct().count()
