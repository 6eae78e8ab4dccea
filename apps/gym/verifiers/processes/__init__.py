"""Processes for verifiers that may hang."""
