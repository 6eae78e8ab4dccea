"""Policy models: the endpoints that produce replies."""
