"""The web UI in a real browser, against a real server."""
