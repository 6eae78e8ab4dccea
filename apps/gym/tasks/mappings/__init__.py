"""From the columns of a stranger's rows to tasks: paths, templates, mappings, and the shapes the field knows."""
