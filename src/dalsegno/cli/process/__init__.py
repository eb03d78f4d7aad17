"""Long-running processes: server, worker and scheduler."""
