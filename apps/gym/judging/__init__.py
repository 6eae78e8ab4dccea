"""Judge models: ask a model to score an attempt by a rubric, or to choose the better of two."""
