"""People, their roles and keys, and the one table of permissions."""
