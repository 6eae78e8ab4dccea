"""Single-turn tasks whose answer must equal the expected one."""
