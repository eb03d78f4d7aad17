"""The names under which connections of ours show in ``pg_stat_activity``: ``dalsegno/1.2.3 listener web-1:4711``.

They say the version, what the connection is for where it is not one of the store's own, and whose it is: what the user
has put into the store's URL as ``application_name``, or else the host and the process. PostgreSQL shows the first 63
bytes.
"""

from __future__ import annotations

import os
import re
import socket
from typing import Literal
from urllib.parse import parse_qs

from dalsegno.ports.upgrading import ConnectedProcess
from dalsegno.version import __version__

Purpose = Literal["", "listener", "task"]

OURS = re.compile(r"dalsegno(?:/(?P<version>\S+))?(?: (?:listener|task))?(?: (?P<whose>.+))?")
WITHOUT_VERSION = ("dalsegno", "dalsegno listener", "dalsegno task")
"""As versions wrote it that did not say which they are."""
CONNECTED = """
SELECT DISTINCT application_name, host(client_addr)
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
  AND (application_name LIKE 'dalsegno/%' OR application_name = ANY($1))
ORDER BY 1, 2
"""
"""Everybody sees the names of all sessions. Addresses are shown to whoever has the same role, or may see all."""


def name_of(url: str, purpose: Purpose = "") -> str:
    """Of a connection that is made by this URL."""
    return " ".join(filter(None, (f"dalsegno/{__version__}", purpose, _given_by(url) or _this_process())))


def process_of(name: str, address: str | None) -> ConnectedProcess:
    """Whose connection it is that has this name."""
    found = OURS.fullmatch(name)
    version, whose = (found["version"], found["whose"]) if found else (None, None)
    return ConnectedProcess(whose or "", version, address)


def _given_by(url: str) -> str:
    return parse_qs(url.partition("?")[2].partition("#")[0]).get("application_name", [""])[-1].strip()


def _this_process() -> str:
    """As workers are named where people read of them."""
    return f"{socket.gethostname()}:{os.getpid()}"
