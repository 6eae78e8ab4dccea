"""Read NeMo Gym's YAML configurations: merge and resolve them like its own commands, then list what they describe."""
