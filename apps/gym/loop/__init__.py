"""Run one attempt at a task (the agent loop, with its limits), or verify it again."""
