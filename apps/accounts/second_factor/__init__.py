"""Two-factor authentication of password accounts: codes of an authenticator app, and recovery codes."""
