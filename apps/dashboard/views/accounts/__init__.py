"""Views for signing in, the user's account, other users, settings and the audit log."""
