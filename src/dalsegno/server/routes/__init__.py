"""HTTP routes, one module per resource. Each module defines routers, which ``application`` combines."""

from dalsegno.server.http import routing  # noqa: F401 - registers the path convertors before any route is made
