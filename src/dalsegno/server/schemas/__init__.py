"""Request bodies and replies of the HTTP API, with examples for the documentation."""
