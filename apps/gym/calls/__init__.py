"""Calls to other servers: which addresses, how often, how long, and how much memory their replies take."""
