"""Derive the columns and links of stored rollouts again with the current rules."""
