"""Environments, their verifiers, and NeMo Gym configurations."""
