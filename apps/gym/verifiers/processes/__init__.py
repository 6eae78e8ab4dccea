"""Processes in which verifiers run that may hang."""
