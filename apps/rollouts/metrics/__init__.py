"""Figures of collections, breakdowns and comparisons."""
