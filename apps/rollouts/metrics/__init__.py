"""The figures of collections, breakdowns and comparisons."""
