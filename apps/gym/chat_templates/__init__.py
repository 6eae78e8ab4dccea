"""Check which parts of exported conversations a chat template renders."""
