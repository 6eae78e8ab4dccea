"""Create and fill queues, lease their items, hide results, and track item states."""
