"""Code exec: a Python executor for a tool, and hidden tests for a verifier."""
