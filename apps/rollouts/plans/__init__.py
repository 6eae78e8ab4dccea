"""Plan collections: which tasks, how often, with what limits."""
