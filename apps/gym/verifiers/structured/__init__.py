"""Verifiers of JSON that a reply gives."""
