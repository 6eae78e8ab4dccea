"""Serve environments, agents and models over the NeMo Gym protocol, independently of the web server."""
