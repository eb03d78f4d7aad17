"""Request headers that belong to the connection: the HTTP client writes them, never a workflow or a credential.

``Host`` chooses the service behind an address, so a token could go to another service than the one that was checked.
The others frame the message or configure the connection; a wrong one lets a proxy read the request differently.
"""

from __future__ import annotations

CONNECTION_HEADERS = frozenset(
    (
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
PROXY_PREFIX = "proxy-"


def is_connection_header(name: str) -> bool:
    lowered = name.lower()
    return lowered in CONNECTION_HEADERS or lowered.startswith(PROXY_PREFIX)
