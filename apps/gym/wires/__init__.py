"""Policy clients: one protocol, and one small module per wire."""
