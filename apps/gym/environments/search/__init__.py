"""Questions about an invented archipelago, with a searchable encyclopaedia."""
