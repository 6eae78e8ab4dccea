"""Run code written by a model, isolated from this process, the machine's files and its network."""
