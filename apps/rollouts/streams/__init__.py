"""Stream the rollouts of a collection to readers as they end."""
