"""Messages between the processes of one PostgreSQL store: announcements, heartbeats, wake-ups."""
