"""Preference pairs, exports and reverifications."""
