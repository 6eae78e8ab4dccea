"""Other formats of stored rollouts, converted to NeMo Gym rows: results of `verifiers`, and chat logs."""
