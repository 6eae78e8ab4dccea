"""Preference pairs: rules, and how they pair the attempts at one task."""
