"""Code execution: a Python executor as a tool, and hidden tests as the verifier."""
