"""Forms of accounts, sign-in, settings, alerts and the audit log."""
