"""Live pages: WebSockets, and the data they send when something has changed."""
