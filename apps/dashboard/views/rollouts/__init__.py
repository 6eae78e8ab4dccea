"""Views of rollouts: their table, traces, and comparisons."""
