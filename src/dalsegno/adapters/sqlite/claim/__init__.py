"""Claims of ready tokens and limit queues on SQLite."""
