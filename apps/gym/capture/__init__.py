"""Capture the model calls of agents that run elsewhere."""
