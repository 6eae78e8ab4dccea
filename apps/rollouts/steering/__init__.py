"""Change collections and rollouts that exist: pause, resume, limits, archive, delete."""
