"""Comments on rollouts."""
