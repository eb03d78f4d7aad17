"""Live events: feeds of executions and streams of server-sent events."""
