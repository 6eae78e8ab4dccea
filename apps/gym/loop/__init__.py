"""Try one task: the agent loop, with its limits."""
