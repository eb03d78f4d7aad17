"""One module per resource. Each has a ``router``; ``application`` puts them together."""

from dalsegno.server.routes import names

__all__ = ["names"]
