"""Judge models: ask a policy model to score an attempt by a rubric, or which of two is better."""
