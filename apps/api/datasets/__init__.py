"""Datasets, their versions, tasks and uploads."""
