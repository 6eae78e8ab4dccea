"""Plan collections: tasks, repeats and limits."""
