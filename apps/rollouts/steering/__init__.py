"""Change existing collections and rollouts: pause, resume, limits, archive, delete."""
