"""Users, roles, API keys, and the table of permissions."""
