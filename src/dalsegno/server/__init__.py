"""The HTTP surface: definitions, executions, live events and operation under ``/v1``.

``dalsegno.server.application`` makes the application; this package itself loads no route.
"""

from dalsegno.admin.keys import Quotas
from dalsegno.server.settings import ServerSettings

__all__ = ["Quotas", "ServerSettings"]
