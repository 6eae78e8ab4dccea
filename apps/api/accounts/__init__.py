"""Users, API keys, saved views, redaction patterns and the audit log."""
