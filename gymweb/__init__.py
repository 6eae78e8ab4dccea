"""Settings, URLs, ASGI and the web server. No app imports it."""
