"""Preference pairs: rules, and the pairs that they make from the attempts at one task."""
