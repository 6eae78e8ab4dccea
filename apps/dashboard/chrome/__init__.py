"""The frame of all pages, and how views respond."""
