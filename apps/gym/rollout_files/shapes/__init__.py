"""The shapes in which others store rollouts, read as NeMo Gym rows: results of `verifiers`, and chat logs."""
