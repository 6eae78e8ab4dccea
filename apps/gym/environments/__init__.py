"""Built-in environments: tools, state and verifier, in one small file each."""
