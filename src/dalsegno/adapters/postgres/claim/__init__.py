"""Claims of ready tokens, limit queues and due timers on PostgreSQL."""
