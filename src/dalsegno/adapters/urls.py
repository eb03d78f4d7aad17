"""URLs of stores and servers: their scheme, and their form for display."""

from __future__ import annotations

import re

LOGIN = re.compile(r"^((?:[\w+.-]+://)?+[^:/@?#]*):.*@")
"""A user and a password, up to the last ``@``: unescaped, a password may contain any separator of a URL."""
PASSWORD_OPTION = re.compile(r"([?&]\w*password=)[^&#]*")


def shown_url(url: str) -> str:
    """Return a store's URL for display, without its password. In doubt it omits more rather than show a part of the
    password."""
    if url.startswith(("sqlite:", "memory:")):
        return url
    return PASSWORD_OPTION.sub(r"\1***", LOGIN.sub(r"\1:***@", url, count=1))


def authority_of(url: str) -> str:
    """Return the login and the hosts of a URL: urlsplit refuses several hosts of which one is an IPv6 address."""
    rest = url.partition("://")[2]
    return rest[: min((at for mark in "/?#" if (at := rest.find(mark)) >= 0), default=len(rest))]


def scheme_of(url: str) -> str:
    """Return the scheme, also of a URL whose rest is malformed."""
    scheme, colon, _ = url.partition(":")
    return scheme.lower() if colon else ""
