"""Queues, reviews, rubrics, flags, reward overrides and comments."""
