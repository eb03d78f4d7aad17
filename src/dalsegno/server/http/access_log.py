"""Redaction of uvicorn's access log, which contains whole paths if an application enables it."""

from __future__ import annotations

import logging

from dalsegno.server.http import paths

ACCESS_LOG = "uvicorn.access"
PATH = 2
"""Index of the path with its query in a record's arguments: address, method, path, version, status."""


class RedactPaths(logging.Filter):
    """Replace tokens in paths; every line passes."""

    def filter(self, record: logging.LogRecord) -> bool:
        args = record.args
        if isinstance(args, tuple) and len(args) > PATH:
            path = str(args[PATH]).partition("?")[0]
            shown = paths.without_secrets(path)
            if shown != path:
                record.args = (*args[:PATH], shown, *args[PATH + 1 :])
        return True


def redact_access_log() -> None:
    log = logging.getLogger(ACCESS_LOG)
    if not any(isinstance(each, RedactPaths) for each in log.filters):
        log.addFilter(RedactPaths())
