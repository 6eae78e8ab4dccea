"""The table of rollouts: filter, pages, counts and columns."""
