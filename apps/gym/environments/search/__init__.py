"""Questions about an invented archipelago, whose encyclopaedia can be searched."""
