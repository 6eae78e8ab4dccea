"""File formats for trainers: each module has pure functions from attempts to JSON objects."""
