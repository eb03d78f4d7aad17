"""Failures of the ``http`` node: the one mapping of exchange errors to error codes.

Details give the address without user, password and query, which may contain secrets.
"""

from __future__ import annotations

import ssl
from typing import Any

import aiohttp
from yarl import URL

from dalsegno.nodes.http.egress import EgressDenied
from dalsegno.nodes.http.name_lookups import LookupsBusy
from dalsegno.ports.node import NodeError

RETRY_LOOKUP_AFTER = 5.0
"""Seconds. Systems abandon a lookup after 5 to 30."""


def shown_url(url: URL) -> str:
    """Return the address in the form that messages may show."""
    return (
        str(url.with_user(None).with_query(None).with_fragment(None))
        if url.absolute
        else "(relative address)"
    )


def bad_url(reason: str, details: dict[str, Any] | None = None) -> NodeError:
    return NodeError(
        f"the address is not usable: {reason}", code="HTTP_BAD_URL", details=details, retryable=False
    )


def timed_out(url: URL, seconds: float) -> NodeError:
    return NodeError(
        f"no complete answer from {shown_url(url)} within {seconds:g} s",
        code="HTTP_TIMEOUT",
        details={"url": shown_url(url), "timeout": seconds},
    )


def too_large(url: URL, limit: int) -> NodeError:
    return NodeError(
        f"the response of {shown_url(url)} is larger than {limit:,} bytes; raise 'max_response_bytes' to accept it",
        code="HTTP_RESPONSE_TOO_LARGE",
        details={"url": shown_url(url), "max_response_bytes": limit},
        retryable=False,
    )


def over_limit(parameter: str, asked: str, setting: str, allowed: str) -> NodeError:
    return NodeError(
        f"parameter '{parameter}' asks for {asked}; this worker allows at most {allowed} (EngineLimits.{setting}). "
        f"Lower '{parameter}', or ask the operator to raise the limit. Nothing was sent",
        code="HTTP_LIMIT",
        details={"parameter": parameter, "limit": setting},
        retryable=False,
    )


def too_many_redirects(url: URL, limit: int) -> NodeError:
    return NodeError(
        f"more than {limit} redirects, the last from {shown_url(url)}",
        code="HTTP_TOO_MANY_REDIRECTS",
        details={"url": shown_url(url)},
        retryable=False,
    )


def blocked(url: URL, denied: EgressDenied) -> NodeError:
    return NodeError(
        str(denied),
        code="HTTP_EGRESS_BLOCKED",
        details={"url": shown_url(url), "host": denied.host},
        retryable=False,
    )


def lookups_busy(url: URL, busy: LookupsBusy) -> NodeError:
    return NodeError(
        str(busy),
        code="HTTP_DNS_BUSY",
        details={"url": shown_url(url), "host": busy.host},
        retry_after=RETRY_LOOKUP_AFTER,
    )


def exchange_failure(error: aiohttp.ClientError | OSError, url: URL) -> NodeError:
    """Return the node failure for an error of the client."""
    code, reason, retryable = _classify(error)
    return NodeError(
        f"{reason}: {shown_url(url)}",
        code=code,
        details={"url": shown_url(url), "reason": _reason(error)},
        retryable=retryable,
    )


def _classify(error: aiohttp.ClientError | OSError) -> tuple[str, str, bool]:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    match error:
        case aiohttp.InvalidURL():
            return "HTTP_BAD_URL", "the address is not usable", False
        case aiohttp.ClientConnectorDNSError():
            return "HTTP_DNS_ERROR", "the host's name cannot be resolved", True
        case aiohttp.ClientSSLError() | ssl.SSLError() | aiohttp.ServerFingerprintMismatch():
            return "HTTP_TLS_ERROR", "no secure connection", True
        case aiohttp.ClientPayloadError() | aiohttp.ClientResponseError():
            return "HTTP_PROTOCOL_ERROR", "the answer cannot be read", True
    if isinstance(cause, ConnectionRefusedError):
        return "HTTP_CONNECTION_REFUSED", "the connection was refused", True
    if isinstance(error, aiohttp.ClientConnectorError):
        return "HTTP_CONNECTION_FAILED", "no connection", True
    return "HTTP_CONNECTION_LOST", "the connection was lost", True


def _reason(error: aiohttp.ClientError | OSError) -> str:
    """Return the operating system's message. The client's messages quote full addresses and are not used."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return type(error.certificate_error).__name__
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return type(cause).__name__
