"""Where code that a model wrote is run: apart from this process, this machine's files and its network."""
