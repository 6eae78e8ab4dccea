REPLACED = [
    "0002_solve_threshold",
    "0003_help_texts_2",
    "0004_help_texts_3",
]
"""The other migrations of version 0.2.0, which 0001_initial replaces."""
