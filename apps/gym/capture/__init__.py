"""Capture the model calls of all agents except the built-in one."""
