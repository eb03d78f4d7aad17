"""The HTTP surface: definitions, executions, live events and operation under ``/v1``."""

from typing import TYPE_CHECKING, Any

from dalsegno.server.quotas import Quotas
from dalsegno.server.settings import ServerSettings

if TYPE_CHECKING:
    from dalsegno.server.application import create_application

__all__ = ["Quotas", "ServerSettings", "create_application"]


def __getattr__(name: str) -> Any:
    """Commands that only look up a key or a webhook need not load every route."""
    if name != "create_application":
        raise AttributeError(f"module 'dalsegno.server' has no attribute {name!r}")
    from dalsegno.server.application import create_application  # noqa: PLC0415 - see above

    return create_application
