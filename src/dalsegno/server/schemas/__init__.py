"""What travels over HTTP: request bodies and replies, with examples for the documentation."""
