"""Labels of the reasons why tasks and rollouts give no pairs or rows."""

_LABELS = {
    "judged_equal": "reviewed as equal",
    "judged_both_bad": "reviewed as both bad",
    "judged_split": "reviewers disagree",
    "beyond_the_best_of_its_task": "over the limit per task",
}


def label_reason(name: str) -> str:
    """Return the label of a reason, by default its name with spaces."""
    return _LABELS.get(name, name.replace("_", " "))
