"""Tables of rollouts and figures, on pages and as files."""
