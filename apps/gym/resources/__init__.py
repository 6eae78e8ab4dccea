"""Resource servers: one session protocol, and one small module per adapter."""
