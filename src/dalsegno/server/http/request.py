"""A request as the guard sees it: before routing, without its body.

- The body is read completely before a route sees the request, within a size and a time limit.
- Unknown query parameters are refused, because a filter that is ignored shows too much.
- Texts that not every store can hold are refused before the store is accessed, so that all stores behave the same.
- The header ``Idempotency-Key`` has the same meaning as the key in a body.
- Some paths have special rules. A path that is not listed here needs a key and accepts only JSON.
"""

from __future__ import annotations

import asyncio
import logging
import re
from functools import cached_property, lru_cache
from typing import Annotated, NamedTuple
from urllib.parse import unquote, urlsplit

from fastapi import Header, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import AfterValidator
from starlette.types import Message, Receive, Scope

from dalsegno.errors import InvalidInput, TooLarge, TooSlow
from dalsegno.model.suggestion import did_you_mean, listed
from dalsegno.server.settings import ServerSettings

COOKIE = "dalsegno_session"
"""The cookie of a session; see `auth.authentication`."""
DEFAULT_PORTS = {"http": 80, "https": 443}
LONGEST_HOST = 300
"""Characters of ``Host`` and ``Origin`` that are parsed: a DNS name has at most 253, and a port follows."""
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,200}", re.ASCII)
"""Session tokens are URL-safe base64: they never contain quotes or escapes."""


class GuardedRequest:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.headers: dict[str, str] = {}
        """Headers by lower-case name; of a repeated header the first one applies, as for the routes."""
        self._hosts = 0
        for name, value in scope["headers"]:
            self.headers.setdefault(name.decode("latin-1"), value.decode("latin-1"))
            self._hosts += name == b"host"
        self.method: str = scope["method"]
        self.path: str = scope["path"]

    @property
    def is_safe(self) -> bool:
        """Whether the method changes nothing by definition."""
        return self.method in SAFE

    @property
    def is_https(self) -> bool:
        return bool(self.scope.get("scheme") == "https")

    @property
    def address(self) -> str | None:
        """The address of the caller; None over a Unix socket."""
        client = self.scope.get("client")
        return str(client[0]) if client else None

    @property
    def has_body(self) -> bool:
        return "transfer-encoding" in self.headers or self.headers.get("content-length", "0").strip() != "0"

    @property
    def media(self) -> str | None:
        found = self.headers.get("content-type")
        return None if found is None else found.partition(";")[0].strip().lower()

    @cached_property
    def host(self) -> Host | None:
        """Name and port of ``Host``; None if it is missing, repeated or invalid."""
        return _read_host(self.headers["host"]) if self._hosts == 1 else None

    @property
    def origin(self) -> str | None:
        return self.headers.get("origin")

    @property
    def fetch_site(self) -> str | None:
        """The ``Sec-Fetch-Site`` header of a browser, which pages cannot forge."""
        return self.headers.get("sec-fetch-site")

    @cached_property
    def is_from_own_page(self) -> bool:
        """Whether a browser states that the request comes from a page of this server; false without such a
        statement."""
        if self.origin is not None:
            return self._is_own(self.origin)
        return self.fetch_site == "same-origin"

    def _is_own(self, origin: str) -> bool:
        """Whether an origin equals ``Host``. A proxy may terminate TLS without saying so: then only the default
        ports of http and https match."""
        scheme, _, place = origin.lower().partition("://")
        origin_host = _read_host(place)
        if scheme not in DEFAULT_PORTS or origin_host is None or self.host is None:
            return False
        if self.is_https and scheme != "https":
            return False
        default = DEFAULT_PORTS[scheme]
        return origin_host.name == self.host.name and (origin_host.port or default) == (
            self.host.port or default
        )

    @cached_property
    def session(self) -> str | None:
        """The token in the session cookie; None if it is missing or malformed."""
        found = None
        for pair in self.headers.get("cookie", "").split(";"):
            name, _, value = pair.partition("=")
            if name.strip() == COOKIE:
                found = value.strip()
        return found if found is not None and _TOKEN.fullmatch(found) else None

    def keep_own_cookie(self) -> None:
        """Remove all cookies but the session's from the request. The framework parses all of them for each route,
        and `http.cookies` takes quadratic time to unquote a value in Python versions without the fix of
        CVE-2024-7592."""
        if "cookie" not in self.headers:
            return
        kept = [pair for pair in self.scope["headers"] if pair[0] != b"cookie"]
        if self.session is not None:
            kept.append((b"cookie", f"{COOKIE}={self.session}".encode()))
        self.scope["headers"] = kept


class Host(NamedTuple):
    """A name of a server, and its port if one is given."""

    name: str
    port: int | None


def _read_host(text: str) -> Host | None:
    return _parse_host(text) if len(text) <= LONGEST_HOST else None


@lru_cache(maxsize=256)
def _parse_host(text: str) -> Host | None:
    try:
        read = urlsplit(f"//{text}")
        name, port = read.hostname, read.port
    except ValueError:
        return None
    if not name or read.path or read.query or read.fragment or read.username is not None:
        return None
    return Host(name.rstrip("."), port)


class ClientDisconnected(Exception):
    """The caller disconnected in the middle of its request; no reply is possible."""


async def read_body(visit: GuardedRequest, receive: Receive, settings: ServerSettings, most: int) -> bytes:
    length = visit.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > most:
        raise TooLarge(_too_large(most))
    try:
        async with asyncio.timeout(settings.body_seconds):
            return await _gather(receive, most)
    except TimeoutError:
        raise TooSlow(f"the body did not arrive within {settings.body_seconds:g} s") from None


async def _gather(receive: Receive, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise TooLarge(_too_large(most))
        if not message.get("more_body", False):
            return b"".join(parts)


def _too_large(most: int) -> str:
    return f"the body is larger than {most:,} bytes"


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that yields the body again, and then the messages of the connection."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


LONGEST_NAME = 100
MOST_NAMED = 10
"""Unknown parameters that are reported one by one; the rest is counted."""


MOST = 200
"""Parameters of one query: enough for filters that take several values."""


def refuse_too_many(request: Request) -> None:
    """Refuse too many parameters, before the query is parsed."""
    found = request.scope["query_string"].count(b"&") + 1
    if found > MOST:
        words = f"There are {found:,} parameters; a query has at most {MOST}"
        raise RequestValidationError([_too_many_parameters(words)])


def _too_many_parameters(words: str) -> dict[str, object]:
    return {"type": "unknown_parameter", "loc": ("query",), "msg": words, "input": None}


def refuse_unknown(request: Request, known: frozenset[str]) -> None:
    if not request.scope["query_string"]:
        return
    unknown = [name for name in dict.fromkeys(request.query_params.keys()) if name not in known]
    if unknown:
        found = [_finding(name, known) for name in unknown[:MOST_NAMED]]
        raise RequestValidationError([*found, *_rest(len(unknown) - MOST_NAMED)])


def _rest(more: int) -> list[dict[str, object]]:
    return [_too_many_parameters(f"There are {more:,} more parameters of unknown names")] if more > 0 else []


def _finding(name: str, known: frozenset[str]) -> dict[str, object]:
    shown = name[:LONGEST_NAME]
    instead = did_you_mean(name, sorted(known))
    if not instead:
        instead = f"; there are {listed(sorted(known))}" if known else "; there are none here"
    return {
        "type": "unknown_parameter",
        "loc": ("query", shown),
        "msg": f"There is no parameter of this name{instead}",
        "input": shown,
    }


NUL = "\0"
NO_NUL = "It must not hold a NUL character, which not every store can keep"
LONGEST_SHOWN = 100
MOST_SHOWN = 10


def refuse_nul(request: Request) -> None:
    """Refuse NUL in the path and the query; bodies are checked by their models."""
    given = [(("path", name), value) for name, value in request.path_params.items()]
    if request.scope["query_string"]:
        given += [(("query", name), value) for name, value in request.query_params.multi_items()]
    found = [
        (where, name)
        for (where, name), value in given
        if NUL in name or (isinstance(value, str) and NUL in value)
    ]
    if found:
        raise RequestValidationError([_texts_finding(*place) for place in found[:MOST_SHOWN]])


def _texts_finding(part: str, name: str) -> dict[str, object]:
    shown = name.replace(NUL, "")[:LONGEST_SHOWN]
    return {"type": "nul", "loc": (part, shown), "msg": NO_NUL, "input": shown}


# -- idempotency keys ----------------------------------------------------------------------------------------


KEY_HEADER = "Idempotency-Key"
SHOWN = 100
"""Characters of a key that messages show."""


def _as_sent(header: str | None) -> str | None:
    """Return the header's text. HTTP does not define the encoding of header bytes: UTF-8 is tried first; other
    bytes are decoded one by one."""
    try:
        return header.encode("latin-1").decode() if header is not None else None
    except UnicodeError:
        return header


IdempotencyKey = Annotated[
    str | None,
    AfterValidator(_as_sent),
    Header(
        alias=KEY_HEADER,
        min_length=1,
        max_length=500,
        description="Any text: repeating the call with the same key has no further effect.",
    ),
]


def takes_key(route: object) -> bool:
    """Whether calls of a route may carry a key; false for None, which is no route."""
    if not isinstance(route, APIRoute):
        return False
    return any(field.alias == KEY_HEADER for field in route.dependant.header_params)


def one_key(header: str | None, body: str | None, field: str = "idempotency_key") -> str | None:
    """Return the key from the header or the body. Raises InvalidInput if they differ."""
    if header is not None and body is not None and header != body:
        raise InvalidInput(
            f"/body/{field}: it says {body[:SHOWN]!r}, and the header {KEY_HEADER} {header[:SHOWN]!r};"
            " send one of them, or the same twice"
        )
    return body if body is not None else header


# -- paths -----------------------------------------------------------------------------------------------------


PREFIX = "/v1"
"""Prefix of all API paths, except those that other software expects elsewhere."""
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
"""Methods that change nothing by definition."""
DEFINITIONS = "/v1/definitions"
VALIDATE = DEFINITIONS + "/validate"
"""Stores nothing."""
ENDINGS = "/v1/executions/endings"
"""Waits for executions whose ids do not fit into a query."""
HOOKS = "/v1/hooks/"
"""Deliveries of webhooks from other systems, authenticated by a signature."""
APPROVAL_PAGES = "/v1/approvals/links/"
"""Single-use pages: the token in the path is the permission, and a form posts the decision."""
STYLE_SHEET = "approval.css"
SESSION = "/v1/session"
WORKER_PROTOCOL = "/v1/tasks/"
BY_HAND = "/by-hand/"
"""Below a task: actions of people on it."""

NAMED_BELOW = (DEFINITIONS + "/", "/v1/schedules/", "/v1/limits/", "/v1/dead/", "/v1/protected-names/")
"""Names in these paths may contain slashes; see `separated`."""

UI_PAGES = ("/executions", "/workflows", "/approvals", "/schedules", "/workers", "/dead")
"""Pages of the web UI beside its first one. The files are the same for everybody; what they show needs a key."""
UI_FILES = ("/theme.js", "/favicon.svg")
PUBLIC = frozenset(
    (
        "/",
        *UI_PAGES,
        *UI_FILES,
        "/docs",
        "/v1/openapi.json",
        "/v1/errors",
        "/v1/health/live",
        "/v1/health/ready",
    )
)
PUBLIC_BELOW = (HOOKS, APPROVAL_PAGES, "/docs/", "/v1/errors/", "/assets/", "/executions/", "/workflows/")
NOT_AUDITED = (
    VALIDATE,
    ENDINGS,
    WORKER_PROTOCOL,  # every claim and heartbeat; the work itself is in the history of executions
)
SECRET_BELOW = (APPROVAL_PAGES,)
SMALL_BODY = 256 * 1024
"""Enough for a form from an unauthenticated sender."""
SIGN_IN_BODY = 4 * 1024
"""Enough for a key."""
LONGEST_PATH_SHOWN = 500


def is_public(method: str, path: str) -> bool:
    """Whether a route is public. Each public route checks access itself."""
    if path == SESSION:
        return method == "POST"
    return path in PUBLIC or path.startswith(PUBLIC_BELOW)


def is_hook(path: str) -> bool:
    return path.startswith(HOOKS)


def largest_body(method: str, path: str, most: int) -> int:
    """Return the size limit of the body. Webhooks are public too, but each has a limit of its own."""
    if path == SESSION:
        return min(most, SIGN_IN_BODY)
    return min(most, SMALL_BODY) if is_public(method, path) and not is_hook(path) else most


def may_change(method: str, path: str) -> bool:
    """Whether the call may have changed something if it was not answered."""
    return is_hook(path) or (method not in SAFE and path not in (VALIDATE, ENDINGS))


def takes_definitions(path: str) -> bool:
    return path in (DEFINITIONS, VALIDATE)


def takes_forms(path: str) -> bool:
    return path.startswith(APPROVAL_PAGES)


def has_rate_limit(method: str, path: str) -> bool:
    """Whether a public route queries the store for what a caller claims: such routes have a rate limit per address."""
    return (path == SESSION and method == "POST") or (
        path.startswith(APPROVAL_PAGES) and path != APPROVAL_PAGES + STYLE_SHEET
    )


def is_audited(path: str) -> bool:
    return not path.startswith(NOT_AUDITED) or BY_HAND in path


def without_secrets(path: str) -> str:
    """Return the path for logs, audit entries and refusals: without tokens, and truncated to a line."""
    below = next((each for each in SECRET_BELOW if path.startswith(each)), None)
    return path[:LONGEST_PATH_SHOWN] if below is None else below + "…"


SLASH = "\udc2f"
"""A lone surrogate: it has no UTF-8 encoding, so no request can contain it."""

_ENCODED = re.compile("%2[fF]")


def separated(scope: Scope) -> str:
    """Return the path for routing, in which slashes that belong to a name are replaced by `SLASH`.

    ``%2F`` belongs to a name, and ``/`` ends it. Routes match a decoded path, in which the name ``v%2Fversions%2F1``
    would equal ``v/versions/1``, version 1 of ``v``. `joined` restores the name that is taken from the path.
    """
    path: str = scope["path"]
    raw = scope.get("raw_path") or b""
    if b"%2" not in raw or not path.startswith(NAMED_BELOW):
        return path
    return SLASH.join(unquote(part) for part in _ENCODED.split(raw.decode("latin-1")))


def joined(text: str) -> str:
    """Return a name, or a whole path for display, with its slashes restored."""
    return text.replace(SLASH, "/")


# -- the log of the HTTP server --------------------------------------------------------------------------------

ACCESS_LOG = "uvicorn.access"
PATH = 2
"""Index of the path with its query in a record's arguments: address, method, path, version, status."""


class RedactPaths(logging.Filter):
    """Replace tokens in paths; every line passes."""

    def filter(self, record: logging.LogRecord) -> bool:
        args = record.args
        if isinstance(args, tuple) and len(args) > PATH:
            path = str(args[PATH]).partition("?")[0]
            shown = without_secrets(path)
            if shown != path:
                record.args = (*args[:PATH], shown, *args[PATH + 1 :])
        return True


def redact_access_log() -> None:
    log = logging.getLogger(ACCESS_LOG)
    if not any(isinstance(each, RedactPaths) for each in log.filters):
        log.addFilter(RedactPaths())
