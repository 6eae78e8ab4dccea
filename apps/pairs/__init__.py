"""Preference pairs: sets built from collections by a rule, and decisions of people about them."""
