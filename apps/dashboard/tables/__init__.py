"""Tables of rollouts and of figures, and the same as files."""
