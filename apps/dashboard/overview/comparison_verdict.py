"""The result of a comparison of two collections, in one sentence."""

from dataclasses import dataclass

from apps.dashboard.chrome.number_formats import interval_end
from apps.gym.metrics.paired_comparison import Interval
from apps.rollouts.metrics.paired_labels import LabelContrast
from apps.rollouts.models import Collection


@dataclass(frozen=True, slots=True)
class ComparisonVerdict:
    """`tone` is better, worse or same. `sentence` names both sides and the interval."""

    tone: str
    sentence: str


def describe_difference(a: Collection, b: Collection, overall: LabelContrast) -> ComparisonVerdict | None:
    """Return the verdict on B against A, or None without a common task.

    Rewards of 0 and 1 are counted as solved tasks, in percentage points.
    """
    reward, passed = overall.reward, overall.pass_at_k
    if not reward.tasks:
        return None
    counts_solved = (reward.mean, reward.other_mean) == (passed.mean, passed.other_mean)
    one, other = _names(a, b)
    if reward.interval is None:
        tasks = "task has" if reward.tasks == 1 else "tasks have"
        return ComparisonVerdict(
            "same", f"Only {reward.tasks} {tasks} rewards in both collections. An interval needs at least five."
        )
    interval = passed.interval if counts_solved and passed.interval else reward.interval
    told = _solves(interval, one, other) if counts_solved else _is_higher(interval, one, other)
    told += f" (95 % interval {_range(interval, points=counts_solved)})."
    if interval.low > 0 or interval.high < 0:
        return ComparisonVerdict("better" if interval.low > 0 else "worse", told)
    return ComparisonVerdict("same", f"No significant difference. {told}")


def _solves(interval: Interval, one: str, other: str) -> str:
    points, higher = abs(interval.mean) * 100, "lower" if interval.mean < 0 else "higher"
    return f"The solve rate of {other} is {points:.1f} percentage points {higher} than that of {one}"


def _is_higher(interval: Interval, one: str, other: str) -> str:
    higher = "lower" if interval.mean < 0 else "higher"
    return f"The mean reward of {other} is {abs(interval.mean):.3f} {higher} than that of {one}"


def _range(interval: Interval, *, points: bool) -> str:
    scale, digits = (100, 1) if points else (1, 3)
    return " to ".join(interval_end(end * scale, digits) for end in (interval.low, interval.high))


def _names(a: Collection, b: Collection) -> tuple[str, str]:
    """Return the names of what differs: the agents or models if only these do, else the collections, as `#4`."""
    pairs = [(a.agent, b.agent), (a.policy_model, b.policy_model), (a.version, b.version)]
    different = [pair for pair in pairs if pair[0].pk != pair[1].pk]
    if len(different) == 1:
        one, other = (str(getattr(each, "name", each)) for each in different[0])
        if one != other:
            return one, other
    return f"#{a.pk}", f"#{b.pk}"
