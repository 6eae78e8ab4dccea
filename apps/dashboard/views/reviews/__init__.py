"""Queues, reviews and rubrics."""
