"""Exporters: one small file a format, rows in, JSON objects out."""
