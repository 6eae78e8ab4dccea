"""Live pages: sockets, and what a page asks for when something has changed."""
