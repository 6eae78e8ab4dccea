REPLACED = [
    "0002_agent_kind",
    "0003_command_agents",
    "0004_agent_server",
    "0005_agent_server_address",
    "0006_strict_tools",
    "0007_retry_empty_replies",
    "0008_help_texts",
    "0009_help_texts_2",
    "0010_help_texts_3",
    "0011_help_texts_4",
]
"""The other migrations of version 0.2.0, which 0001_initial replaces."""
