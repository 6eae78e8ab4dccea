"""Reviews of rollouts by people: queues, verdicts, comments, flags and reward overrides."""
