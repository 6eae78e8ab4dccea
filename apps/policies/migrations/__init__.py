REPLACED = [
    "0002_messages_api",
    "0003_cache_write_price",
    "0004_logprob_mode",
    "0005_help_texts_2",
    "0006_help_texts_0_2",
]
"""The other migrations of version 0.2.0, which 0001_initial replaces."""
