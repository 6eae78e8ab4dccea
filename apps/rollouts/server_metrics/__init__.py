"""Metrics of a collection that the resource server of its environment computes."""
