"""Datasets, their immutable versions and tasks."""
