"""Import rollouts and configurations that were made elsewhere."""
