"""Headers of every reply: what browsers must not do with it."""

from __future__ import annotations

from starlette.types import Message, Send

from dalsegno.server.visit import Visit

API_POLICY = b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
PAGE_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    b"font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing is fetched from elsewhere, and nothing inside a page runs that is not a file of this server."""

ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    # Not `no-referrer`: with it, browsers send `Origin: null` with the forms of our own pages.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
HTTPS_ONLY = (b"strict-transport-security", b"max-age=31536000")


def dressed(send: Send, visit: Visit, more: tuple[tuple[bytes, bytes], ...] = ()) -> Send:
    """A ``send`` that adds them; what a route has set itself stays."""

    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = _completed(list(message.get("headers", ())), visit, more)
        await send(message)

    return with_headers


def _completed(
    headers: list[tuple[bytes, bytes]], visit: Visit, more: tuple[tuple[bytes, bytes], ...]
) -> list[tuple[bytes, bytes]]:
    named = {name.lower(): value for name, value in headers}
    is_page = named.get(b"content-type", b"").startswith(b"text/html")
    wanted = [*ALWAYS, (b"content-security-policy", PAGE_POLICY if is_page else API_POLICY)]
    if visit.is_https:
        wanted.append(HTTPS_ONLY)
    headers += [pair for pair in wanted if pair[0] not in named]
    return [*headers, *more]
