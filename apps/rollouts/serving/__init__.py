"""Serve environments, agents and policy models to other programs."""
