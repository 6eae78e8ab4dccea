REPLACED = [
    "0002_help_texts_2",
]
"""The other migrations of version 0.2.0, which 0001_initial replaces."""
