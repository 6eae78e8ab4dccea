"""Group unsolved rollouts by cause."""
