"""Attempts at agents other than the built-in loop."""
