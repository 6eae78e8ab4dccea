"""Preference pairs and pair sets."""
