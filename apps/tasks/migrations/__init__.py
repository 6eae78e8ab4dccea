REPLACED = [
    "0002_rows_as_uploaded",
    "0003_gold_check",
    "0004_suites",
    "0005_stored_images",
    "0006_help_texts",
    "0007_gold_check_help",
    "0008_help_texts_0_2",
]
"""The other migrations of version 0.2.0, which 0001_initial replaces."""
