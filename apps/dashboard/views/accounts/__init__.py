"""Signing in, one's own account, other people, settings and the audit log."""
