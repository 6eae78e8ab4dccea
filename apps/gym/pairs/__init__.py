"""Preference pairs: rules, and the pairs that they make of the attempts at one task."""
