"""Policy models, and the circuit breakers and throttles of endpoints."""
