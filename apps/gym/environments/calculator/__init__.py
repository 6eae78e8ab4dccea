"""Arithmetic with one tool."""
