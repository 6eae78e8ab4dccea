"""Rollouts: their table, their traces, and several side by side."""
