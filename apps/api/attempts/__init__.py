"""Attempts of external agents."""
