"""Labels of the reasons why tasks and rollouts give no pairs or rows."""

_LABELS = {
    "flagged": "redactions not reviewed",
    "below_min_reward": "below the minimum reward",
    "tie": "equal rewards",
    "below_margin": "reward difference below the margin",
    "preference_cycle": "contradicts another preference",
    "too_few_attempts": "fewer than two usable rollouts",
    "chosen_too_weak": "best reward below the minimum chosen reward",
    "states_differ": "environment replies differ before the actions do",
    "lengths_differ": "above the maximum length ratio",
    "judged_equal": "reviewed as equal",
    "judged_both_bad": "reviewed as both bad",
    "judged_split": "reviewers disagree",
    "beyond_the_best_of_its_task": "over the limit per task",
}


def label_reason(name: str) -> str:
    """Return the label of a reason, by default its name with spaces."""
    return _LABELS.get(name, name.replace("_", " "))
