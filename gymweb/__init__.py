"""The wiring: settings, addresses, ASGI, serving. Imported by nobody."""
