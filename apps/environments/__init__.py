"""Environments: tools, per-attempt state and verifier."""
