"""Policy clients: one protocol, one small file a wire."""
