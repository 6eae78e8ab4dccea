"""Traces of attempts: events, conversation items, and conversions of them."""
