"""Names of the metrics by number of rollouts, for pages, the API and CSV files."""

from typing import NamedTuple


class FigureName(NamedTuple):
    """A figure: its name in the API and in CSV files, its label on pages, and one sentence about it."""

    name: str
    label: str
    help: str


CURVES = (
    FigureName("pass_at_k", "pass@k", "Probability that at least one of k rollouts solves the task"),
    FigureName("best_of_k", "best-of-k", "Expected best reward of k rollouts"),
    FigureName("majority_at_k", "majority@k", "Probability that the most frequent answer of k rollouts is correct"),
    FigureName("average_of_k", "avg@k", "Expected mean reward of k rollouts"),
)
"""Metrics over all choices of k rollouts, averaged over tasks with at least k. Formulas are in apps.gym.metrics."""

FIRST_K = (
    FigureName("average", "avg of first k", "Mean reward of the first k rollouts (NeMo Gym: pass@1[avg-of-k])"),
    FigureName("best", "NeMo Gym's pass@k", "pass@k, or the best reward of the first k if rewards are not 0 or 1"),
    FigureName("majority", "majority of first k", "Reward of the most frequent answer of the first k rollouts"),
    FigureName("no_answer", "no answer", "Share of the first k rollouts without an answer"),
    FigureName(
        "std_across_runs",
        "std across runs",
        "Standard deviation of k means: the mean reward of all first rollouts, of all second rollouts, and so on",
    ),
    FigureName("error_across_runs", "standard error", "Standard error of the mean of these k means"),
    FigureName("mean_std", "std within tasks", "Mean over tasks of the standard deviation of the first k rewards"),
)
"""Metrics of the first k rollouts: apps.gym.metrics.first_k."""

HELP = {each.name: f"{each.help}." for each in (*CURVES, *FIRST_K)}
