REPLACED = [
    "0002_audit_request_id",
    "0003_sign_in_methods",
    "0004_unique_names",
    "0005_help_texts_0_2",
]
"""The other migrations of version 0.2.0, which 0001_initial replaces."""
