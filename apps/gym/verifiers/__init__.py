"""Verifiers: one small module per rule, each returning a Reward."""
