"""Attempts without a model: players in its part, and cases whose reward is known."""
