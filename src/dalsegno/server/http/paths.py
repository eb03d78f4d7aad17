"""Paths with special rules. A path that is not listed here needs a key and accepts only JSON.

Names in paths may contain slashes: ``%2F`` belongs to a name, and ``/`` ends it.
Routes match a decoded path, in which the name ``v%2Fversions%2F1`` equals ``v/versions/1``, version 1 of ``v``.
Therefore an encoded slash is replaced there by a character that no decoded path can contain, and restored when the
name is taken from the path.
"""

from __future__ import annotations

import logging
import re
from urllib.parse import unquote

from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
"""Names in these paths may contain slashes; see `EncodedSlashes`."""

PUBLIC = frozenset(("/", "/docs", "/v1/openapi.json", "/v1/errors", "/v1/health/live", "/v1/health/ready"))
PUBLIC_BELOW = (HOOKS, APPROVAL_PAGES, "/docs/", "/v1/errors/")
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


class EncodedSlashes:
    """Middleware right before the routes. All others, including the access log, see the path as received."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        original = scope["path"]

        async def answered(message: Message) -> None:
            scope["path"] = original
            await send(message)

        scope["path"] = separated(scope)
        try:
            await self.app(scope, receive, answered)
        finally:
            scope["path"] = original


def separated(scope: Scope) -> str:
    """Return the path for routing."""
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
