"""Stream the rollouts of a collection as they end."""
