"""API keys, sessions, scopes, quotas and the audit log."""
