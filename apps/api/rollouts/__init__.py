"""Rollouts, their traces and tokens, and their verification."""
