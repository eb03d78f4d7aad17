"""Pages of other origins: what browsers are told for the origins that the settings list, and for no others.

Cookies are not for them: such a page shows a key with each call.
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.responses import Response

from dalsegno.errors import ForeignOrigin
from dalsegno.server.visit import Visit

METHODS = "GET, POST, PUT, PATCH, DELETE"
HEADERS = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Traceparent"
EXPOSED = b"Location, Retry-After"
MAX_AGE = "600"

Pairs = tuple[tuple[bytes, bytes], ...]


def preflight(visit: Visit, origins: Collection[str]) -> Response | None:
    """The answer to a browser that asks whether a page may call; None where nobody asks."""
    if visit.method != "OPTIONS" or "access-control-request-method" not in visit.headers:
        return None
    if visit.origin not in origins:
        raise ForeignOrigin(f"pages of {(visit.origin or '')[:100]!r} may not call this server")
    headers = {
        "Access-Control-Allow-Methods": METHODS,
        "Access-Control-Allow-Headers": HEADERS,
        "Access-Control-Max-Age": MAX_AGE,
    }
    return Response(status_code=204, headers=headers)


def allowance(visit: Visit, origins: Collection[str]) -> Pairs:
    """Headers of every reply, also of refusals, so that a listed page can read them."""
    if not origins:
        return ()
    if visit.origin is None or visit.origin not in origins:
        return ((b"vary", b"Origin"),)
    return (
        (b"vary", b"Origin"),
        (b"access-control-allow-origin", visit.origin.encode("latin-1")),
        (b"access-control-expose-headers", EXPOSED),
    )
