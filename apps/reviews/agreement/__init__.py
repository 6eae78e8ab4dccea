"""Agreement between reviewers and with verifiers, and the resulting decisions."""
