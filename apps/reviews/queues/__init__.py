"""Queues: create, fill, lease and hide items, and track their state."""
