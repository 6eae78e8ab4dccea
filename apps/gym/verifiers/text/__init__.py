"""Verifiers that compare texts."""
