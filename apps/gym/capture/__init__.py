"""Capture the model calls of external agents and command agents."""
