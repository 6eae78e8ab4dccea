"""The HTML pages and their live updates over WebSockets."""
