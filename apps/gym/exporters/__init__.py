"""Exporters: one small file a format, each a pure function from attempts to one JSON object or a Dropped."""
