REPLACED = [
    "0002_plain_help_texts",
]
"""The other migrations of version 0.2.0, which 0001_initial replaces."""
