"""Agents: the harness between policy model and environment."""
