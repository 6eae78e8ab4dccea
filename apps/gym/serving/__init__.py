"""Serve environments, agents and models over NeMo Gym's protocol, independent of the HTTP server."""
