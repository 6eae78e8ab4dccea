"""Policy models, and what holds calls to an endpoint back."""
