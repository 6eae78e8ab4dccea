"""Datasets, their tasks and uploads."""
