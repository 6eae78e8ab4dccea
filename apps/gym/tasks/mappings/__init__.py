"""Convert rows of any columns to tasks: paths, templates, mappings, and common row formats."""
