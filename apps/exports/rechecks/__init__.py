"""Recheck stored rollouts with the current rules, and mark the pairs and exports that used changed ones as stale."""
