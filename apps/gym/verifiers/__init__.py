"""Verifiers: one small file a rule, each gives a Reward."""
