"""Redact credentials before storing: by name, by form, or because they are secrets of this installation."""
