"""Preference pairs and the files that trainers load."""
