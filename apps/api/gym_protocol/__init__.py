"""NeMo Gym's protocol for clients with an API key."""
