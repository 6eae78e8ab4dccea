"""Preference pairs: sets that a rule makes of collections, and what people decide of them."""
