"""Verifiers that compare numbers and expressions."""
