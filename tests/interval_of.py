"""The interval of a mean, from plain lists of values."""

from apps.gym.metrics.clustered_intervals import mean_interval


def interval_of(groups):
    """The interval of the mean of all values; a group has the values of one task."""
    values = [value for group in groups for value in group]
    mean = sum(values) / len(values)
    return mean_interval(
        mean=mean,
        squares=sum((sum(group) - len(group) * mean) ** 2 for group in groups),
        size=len(values),
        tasks=len(groups),
        low=min(values),
        high=max(values),
        is_binary=set(values) <= {0, 1},
    )
