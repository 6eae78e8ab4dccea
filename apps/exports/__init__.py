"""Exports: the files that trainers load."""
