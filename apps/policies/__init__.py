"""Policy models: where replies come from."""
