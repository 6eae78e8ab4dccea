"""Resource servers: one session protocol, one small file an adapter."""
