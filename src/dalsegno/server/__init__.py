"""The HTTP surface: definitions, executions, live events and operation under ``/v1``."""

from dalsegno.server.application import create_application
from dalsegno.server.settings import ServerSettings

__all__ = ["ServerSettings", "create_application"]
