"""Settings, URLs, ASGI and serving. No app imports it."""
