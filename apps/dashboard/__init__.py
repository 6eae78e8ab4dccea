"""The pages: HTML in and out, live over sockets."""
