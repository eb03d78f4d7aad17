"""One request as the guard sees it: before routing, without its body."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from urllib.parse import urlsplit

from starlette.types import Scope

from dalsegno.server.paths import SAFE
from dalsegno.server.sessions import COOKIE

DEFAULT_PORTS = {"http": 80, "https": 443}
LONGEST_HOST = 300
"""Characters of ``Host`` and ``Origin`` that are parsed: a DNS name has at most 253, and a port follows."""
_TOKEN = re.compile(r"[A-Za-z0-9_-]{1,200}", re.ASCII)
"""Tokens of sessions are URL-safe base64: nothing in them is ever quoted or escaped."""


class Visit:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.headers: dict[str, str] = {}
        """By lower-case name; of one that is given twice the first counts, as for the routes."""
        self._hosts = 0
        for name, value in scope["headers"]:
            self.headers.setdefault(name.decode("latin-1"), value.decode("latin-1"))
            self._hosts += name == b"host"
        self.method: str = scope["method"]
        self.path: str = scope["path"]

    @property
    def is_safe(self) -> bool:
        """Whether the method promises to change nothing."""
        return self.method in SAFE

    @property
    def is_https(self) -> bool:
        return bool(self.scope.get("scheme") == "https")

    @property
    def address(self) -> str | None:
        """Of who calls; None over a Unix socket."""
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
    def host(self) -> tuple[str, int | None] | None:
        """Name and port of ``Host``; None where it is missing, given twice or nonsense."""
        return _read_host(self.headers["host"]) if self._hosts == 1 else None

    @property
    def origin(self) -> str | None:
        return self.headers.get("origin")

    @property
    def fetch_site(self) -> str | None:
        """What a browser says about where the call comes from; pages cannot forge it."""
        return self.headers.get("sec-fetch-site")

    @cached_property
    def is_from_own_page(self) -> bool:
        """Said by a browser, not by default."""
        if self.origin is not None:
            return self._is_own(self.origin)
        return self.fetch_site == "same-origin"

    def _is_own(self, origin: str) -> bool:
        """Compared with ``Host``. A proxy may end TLS without telling: then only the ports of http and https count."""
        scheme, _, place = origin.lower().partition("://")
        theirs = _read_host(place)
        if scheme not in DEFAULT_PORTS or theirs is None or self.host is None:
            return False
        if self.is_https and scheme != "https":
            return False
        default = DEFAULT_PORTS[scheme]
        return theirs[0] == self.host[0] and (theirs[1] or default) == (self.host[1] or default)

    @cached_property
    def session(self) -> str | None:
        """The token in the session cookie; None where there is none, or something that is no token."""
        found = None
        for pair in self.headers.get("cookie", "").split(";"):
            name, _, value = pair.partition("=")
            if name.strip() == COOKIE:
                found = value.strip()
        return found if found is not None and _TOKEN.fullmatch(found) else None

    def keep_own_cookie(self) -> None:
        """Remove every cookie but the session's from the request. The framework parses all of them for each route, and
        `http.cookies` takes quadratic time to unquote a value in Python versions without the fix of CVE-2024-7592."""
        if "cookie" not in self.headers:
            return
        kept = [pair for pair in self.scope["headers"] if pair[0] != b"cookie"]
        if self.session is not None:
            kept.append((b"cookie", f"{COOKIE}={self.session}".encode()))
        self.scope["headers"] = kept


def _read_host(text: str) -> tuple[str, int | None] | None:
    return _parse_host(text) if len(text) <= LONGEST_HOST else None


@lru_cache(maxsize=256)
def _parse_host(text: str) -> tuple[str, int | None] | None:
    try:
        read = urlsplit(f"//{text}")
        name, port = read.hostname, read.port
    except ValueError:
        return None
    if not name or read.path or read.query or read.fragment or read.username is not None:
        return None
    return name.rstrip("."), port
