"""Attempt one task: the agent loop, with its limits."""
