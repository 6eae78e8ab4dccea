"""Attempts without a model: scripted players, and cases with known rewards."""
