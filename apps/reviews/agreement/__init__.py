"""Agreement between reviewers, with verifiers, and the decisions that follow."""
