"""The database file, its connections, and the threads that use them."""
