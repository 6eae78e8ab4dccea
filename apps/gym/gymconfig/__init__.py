"""NeMo Gym's YAML configurations: merged and resolved as its own commands do, then taken for what they describe."""
