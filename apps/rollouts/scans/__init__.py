"""Ask a judge model one question about many rollouts."""
