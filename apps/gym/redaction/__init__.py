"""Redact credentials before storing: by name, by format, or because they are secrets of this installation."""
