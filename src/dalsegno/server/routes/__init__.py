"""One module per resource. Each has a ``router``; ``application`` puts them together."""
