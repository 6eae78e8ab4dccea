"""The table of rollouts: what an address asks for, its pages, its counts and its columns."""
