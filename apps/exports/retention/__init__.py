"""Retention: rules that delete old traces and collections, unless other objects use them."""
