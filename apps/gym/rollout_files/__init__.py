"""Read stored rollouts from files of other programs."""
