"""Environments, verifiers, agents and policy models."""
