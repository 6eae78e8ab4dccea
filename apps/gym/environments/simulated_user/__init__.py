"""Serve a simulated user of a library, who has a persona, instructions and tools of its own."""
