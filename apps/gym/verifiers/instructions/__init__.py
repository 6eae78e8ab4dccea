"""Verifiers of instruction constraints."""
