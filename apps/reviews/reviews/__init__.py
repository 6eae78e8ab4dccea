"""Submit, draft and undo reviews; reward overrides, flags and rubrics."""
