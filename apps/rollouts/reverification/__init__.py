"""Verify stored rollouts again, without inference."""
