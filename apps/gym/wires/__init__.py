"""Policy clients: one protocol, and the modules of each wire (API format)."""
