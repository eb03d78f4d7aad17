"""Builds requests of the ``http`` node: address, headers, authorisation and body, ready to be sent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from multidict import CIMultiDict
from yarl import URL

from dalsegno.nodes.http_authorisation import Authorisation, authorised_by, basic
from dalsegno.nodes.http_errors import bad_url, shown_url
from dalsegno.nodes.http_parameters import Auth, HttpParameters
from dalsegno.nodes.parameters import as_text, json_type
from dalsegno.ports.node import NodeError
from dalsegno.ports.secrets import Credential

IDEMPOTENCY_KEY = "Idempotency-Key"
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_SECRET_WORDS = ("auth", "cookie", "token", "key", "secret", "session", "signature", "password", "credential")
_BODY_HEADERS = ("Content-Type", "Content-Length", "Content-Encoding", "Content-Language")


@dataclass(frozen=True, slots=True)
class Request:
    """One request; headers in ``secrets``, and what the credential put into the address, go to the first host only."""

    method: str
    url: URL
    headers: CIMultiDict[str]
    body: bytes | None
    secrets: frozenset[str]
    credential: Authorisation | None = None
    """What a credential adds; None also after the request was sent elsewhere."""

    def redirected(self, location: str, status: int) -> Request:
        """The request that follows a redirect, as browsers and RFC 9110 do it."""
        moved = self.moved_to(location)
        to_get = (status == 303 and self.method != "HEAD") or (status in (301, 302) and self.method == "POST")
        if not to_get:
            return moved
        headers = moved.headers.copy()
        for name in (*_BODY_HEADERS, IDEMPOTENCY_KEY):
            headers.popall(name, None)
        return replace(moved, method="GET", headers=headers, body=None)

    def moved_to(self, location: str) -> Request:
        """The same request to another address; what authorises it stays behind when the host is another one."""
        # Credentials in an address that a server chose are not the author's to send.
        url = parse_url(location, self.url).with_user(None)
        if _same_place(self.url, url) and (self.credential is None or self.credential.permits(url)):
            return replace(self, url=self.credential.in_address(url) if self.credential else url)
        if self.credential is not None:
            url = self.credential.out_of_address(url)
        return replace(self, url=url, headers=self._without_secrets(), credential=None)

    def _without_secrets(self) -> CIMultiDict[str]:
        return CIMultiDict(
            (name, value) for name, value in self.headers.items() if name.lower() not in self.secrets
        )


def build_request(
    parameters: HttpParameters, idempotency_key: str, credential: Credential | None = None
) -> Request:
    """The first request; raises NodeError for an address or body that cannot be sent, and CredentialRefused for a host
    that is not on the credential's list."""
    url = parse_url(parameters.url)
    headers = CIMultiDict(parameters.headers)
    body = _encode_body(parameters.body, headers)
    verified = not parameters.ignore_ssl
    added = authorised_by(credential, url, verified=verified) if credential is not None else None
    auth = (added.header if added else None) or _auth_header(parameters.auth) or _url_auth(url)
    if auth is not None:
        headers[auth[0]] = auth[1]
    if parameters.method not in _SAFE_METHODS:
        headers.setdefault(IDEMPOTENCY_KEY, idempotency_key)
    url = with_query(url.with_user(None), parameters.query)
    return Request(
        method=parameters.method,
        url=added.in_address(url) if added else url,
        headers=headers,
        body=body,
        secrets=frozenset(_secret_names(headers, auth[0] if auth else None)),
        credential=added,
    )


def parse_url(text: str, base: URL | None = None) -> URL:
    """An absolute http(s) address; relative ones are resolved against ``base``."""
    try:
        url = URL(text.strip())
        url = url if base is None else base.join(url)
        port = url.port
    except ValueError:
        raise bad_url("it cannot be read") from None
    if url.scheme not in ("http", "https"):
        given = f"'{url.scheme}'" if url.scheme else "no scheme"
        raise bad_url(f"it should start with http:// or https://, but has {given}", {"url": shown_url(url)})
    if not url.host or port == 0:
        raise bad_url("it names no host" if not url.host else "port 0 is none", {"url": shown_url(url)})
    return url


def with_query(url: URL, query: Mapping[str, Any]) -> URL:
    """The address with parameters added; lists repeat a parameter, null leaves it out."""
    pairs = list(_pairs(query))
    return url.extend_query(pairs) if pairs else url


def _pairs(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                yield name, as_text(each)


def _encode_body(body: Any, headers: CIMultiDict[str]) -> bytes | None:
    if body is None:
        return None
    given = headers.get("Content-Type", "")
    kind = given.partition(";")[0].strip().lower()
    if isinstance(body, str):
        headers.setdefault("Content-Type", "text/plain; charset=utf-8")
        return _utf8(body)
    if kind == "application/x-www-form-urlencoded" and isinstance(body, dict):
        return urlencode(list(_pairs(body))).encode()
    if not kind or kind == "application/json" or kind.endswith("+json"):
        headers.setdefault("Content-Type", "application/json")
        return _utf8(json.dumps(body, ensure_ascii=False, separators=(",", ":")))
    if isinstance(body, dict | list):
        raise _unsuitable_body(
            f"{json_type(body)} cannot be sent as '{kind}'; give text, or another Content-Type"
        )
    return _utf8(as_text(body))


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _unsuitable_body("it holds half of a surrogate pair, which is no valid text") from None


def _unsuitable_body(reason: str) -> NodeError:
    return NodeError(f"parameter 'body': {reason}", code="HTTP_BAD_BODY", retryable=False)


def _auth_header(auth: Auth | None) -> tuple[str, str] | None:
    if auth is None:
        return None
    match auth.type:
        case "basic":
            return "Authorization", basic(auth.username, auth.password)
        case "bearer":
            return "Authorization", f"Bearer {auth.token}"
        case "header":
            return auth.name or "", auth.value or ""


def _url_auth(url: URL) -> tuple[str, str] | None:
    """User and password in the address itself."""
    return ("Authorization", basic(url.user or "", url.password or "")) if url.user or url.password else None


def _secret_names(headers: CIMultiDict[str], auth_name: str | None) -> Iterator[str]:
    """Headers that may authorise: the node's own, and those whose names sound like it."""
    for name in headers:
        lowered = name.lower()
        chosen = auth_name is not None and lowered == auth_name.lower()
        sounds_secret = any(word in lowered for word in _SECRET_WORDS)
        if chosen or (sounds_secret and lowered != IDEMPOTENCY_KEY.lower()):
            yield lowered


def _same_place(old: URL, new: URL) -> bool:
    """Same host and port; the step from http to https on the usual ports counts as staying."""
    if old.host != new.host or (old.scheme == "https" and new.scheme == "http"):
        return False
    return old.port == new.port or (old.is_default_port() and new.is_default_port())
