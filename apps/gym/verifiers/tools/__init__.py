"""Verifiers of tool calls."""
