"""Settings, URLs, ASGI application and web server. No app imports this package."""
