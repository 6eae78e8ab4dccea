"""Verifiers of JSON in a reply."""
