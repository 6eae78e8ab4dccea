REPLACED = [
    "0001_exports",
    "0002_mask_credentials",
    "0003_help_texts",
    "0004_trace_sends",
]
"""The other migrations of version 0.2.0, which 0001_initial replaces."""
