"""NeMo Gym's protocol for programs with an API key."""
