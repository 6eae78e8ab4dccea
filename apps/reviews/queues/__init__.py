"""Queues: make, fill, lease, blind and settle their items."""
