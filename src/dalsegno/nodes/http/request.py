"""Requests of the ``http`` node: address, headers, authorisation and body.

A credential adds a header, or a parameter of the address.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from multidict import CIMultiDict
from yarl import URL

from dalsegno.errors import CredentialRefused
from dalsegno.nodes.http.errors import bad_url, shown_url
from dalsegno.nodes.http.node import Auth, HttpParameters
from dalsegno.nodes.parameters import as_text, json_type
from dalsegno.ports.node import NodeError
from dalsegno.ports.secrets import Credential, HostEntry, host_entry, is_connection_header


@dataclass(frozen=True, slots=True, repr=False)
class Authorisation:
    """The contribution of a credential: either ``header`` or ``query``, each a name and a value."""

    permits: Callable[[URL], bool]
    """Returns True if the credential's host list contains the address."""
    header: tuple[str, str] | None = None
    query: tuple[str, str] | None = None

    def in_address(self, url: URL) -> URL:
        """Add the query parameter. A server that sends a redirect or next page seldom repeats it."""
        if self.query is None:
            return url
        name, value = self.query
        return url.update_query({name: value})

    def out_of_address(self, url: URL) -> URL:
        if self.query is None:
            return url
        name, _ = self.query
        return url.without_query_params(name)


def authorised_by(credential: Credential, url: URL, *, verified: bool = True) -> Authorisation:
    """Return the credential's contribution; raise CredentialRefused if the credential is not valid for this address.

    ``verified``: the certificate of the server is checked.
    """

    def permits(address: URL) -> bool:
        # The raw host is the one that the client connects to: lower case, punycode, ASCII digits.
        host, port = address.raw_host or "", address.port
        return credential.permits_host(host, port, address.scheme, verified=verified)

    if not permits(url):
        raise CredentialRefused(_refusal(credential, url, verified=verified))
    header, query = _carried(credential)
    return Authorisation(permits, header, query)


Carried = tuple[tuple[str, str] | None, tuple[str, str] | None]


def _carried(credential: Credential) -> Carried:
    """Return the header or the query parameter that contains the credential."""
    match credential.type:
        case "bearer":
            return ("Authorization", f"Bearer {credential['token']}"), None
        case "basic":
            return ("Authorization", basic(credential["username"], credential["password"])), None
        case "header" if is_connection_header(credential.sent_as):
            raise CredentialRefused(
                f"credential '{credential.name}' is sent as the header '{credential.sent_as}', which belongs to the "
                "connection; set it again with another '--sent-as'"
            )
        case "header":
            return (credential.sent_as, credential["value"]), None
        case "query":
            return None, (credential.sent_as, credential["value"])
    raise CredentialRefused(
        f"credential '{credential.name}' is of type '{credential.type}', which does not say how a request carries it; "
        "use one of type 'bearer', 'basic', 'header' or 'query'"
    )


def _refusal(credential: Credential, url: URL, *, verified: bool) -> str:
    """Return the message. It names the entry to change if the host is listed and the scheme or port is not."""
    host = url.raw_host or ""
    known = next((entry for entry in credential.hosts if HostEntry.parse(entry).names(host)), None)
    if known is None:
        listed = ", ".join(credential.hosts) or "none"
        return (
            f"credential '{credential.name}' may not be sent to {host}; its hosts: {listed}. Nothing was sent"
        )
    unverified = (
        "" if verified or url.scheme == "http" else " without a check of its certificate (`ignore_ssl`)"
    )
    wanted = host_entry(host, url.port, url.scheme, verified=verified)
    return (
        f"credential '{credential.name}' may not be sent to {url.scheme}://{host}:{url.port}{unverified}: its host "
        f"'{known}' means https with a checked certificate, on port 443 unless the entry names another. If it is meant "
        f"to go there, replace the entry by '{wanted}' (`dalsegno credentials add {credential.name} --keep --host "
        f"{wanted} …`). Nothing was sent"
    )


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


IDEMPOTENCY_KEY = "Idempotency-Key"
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_SECRET_WORDS = ("auth", "cookie", "token", "key", "secret", "session", "signature", "password", "credential")
_BODY_HEADERS = ("Content-Type", "Content-Length", "Content-Encoding", "Content-Language")


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Headers in ``secrets``, and the credential's query parameter, are sent to the first host only."""

    method: str
    url: URL
    headers: CIMultiDict[str]
    body: bytes | None
    secrets: frozenset[str]
    credential: Authorisation | None = None
    """The contribution of the credential; None also after the request was sent to another host."""

    def redirected(self, location: str, status: int) -> Request:
        """Return the request that follows a redirect, according to browsers and RFC 9110."""
        moved = self.moved_to(location)
        becomes_get = (status == 303 and self.method != "HEAD") or (
            status in (301, 302) and self.method == "POST"
        )
        if not becomes_get:
            return moved
        headers = moved.headers.copy()
        for name in (*_BODY_HEADERS, IDEMPOTENCY_KEY):
            headers.popall(name, None)
        return replace(moved, method="GET", headers=headers, body=None)

    def moved_to(self, location: str) -> Request:
        """Return the same request to another address. Authorisation is dropped if the host is another one."""
        # A server-chosen address must not make the node send credentials that the author did not write.
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
    """Return the first request.

    Raises NodeError for an address or body that cannot be sent, and CredentialRefused for a host that is not on the
    credential's list.
    """
    url = parse_url(parameters.url)
    headers = CIMultiDict(parameters.headers)
    body = _encode_body(parameters.body, headers)
    verified = not parameters.ignore_ssl
    added = authorised_by(credential, url, verified=verified) if credential is not None else None
    auth = (added.header if added else None) or _auth_header(parameters.auth) or _url_auth(url)
    header, value = auth if auth is not None else (None, "")
    if header is not None:
        headers[header] = value
    if parameters.method not in _SAFE_METHODS:
        headers.setdefault(IDEMPOTENCY_KEY, idempotency_key)
    url = with_query(url.with_user(None), parameters.query)
    return Request(
        method=parameters.method,
        url=added.in_address(url) if added else url,
        headers=headers,
        body=body,
        secrets=frozenset(_secret_names(headers, header)),
        credential=added,
    )


def parse_url(text: str, base: URL | None = None) -> URL:
    """Parse an absolute http(s) address; resolve a relative one against ``base``."""
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
        raise bad_url("it names no host" if not url.host else "port 0 is not a port", {"url": shown_url(url)})
    return url


def with_query(url: URL, query: Mapping[str, Any]) -> URL:
    """Return the address with parameters added; lists repeat a parameter, null omits it."""
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
        raise _unsuitable_body("it holds half of a surrogate pair, which is not valid text") from None


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
    """Return user and password from the address."""
    return ("Authorization", basic(url.user or "", url.password or "")) if url.user or url.password else None


def _secret_names(headers: CIMultiDict[str], auth_name: str | None) -> Iterator[str]:
    """Yield headers that may authorise: the node's own, and those with names that suggest it."""
    for name in headers:
        lowered = name.lower()
        chosen = auth_name is not None and lowered == auth_name.lower()
        is_secret_name = any(word in lowered for word in _SECRET_WORDS)
        if chosen or (is_secret_name and lowered != IDEMPOTENCY_KEY.lower()):
            yield lowered


def _same_place(old: URL, new: URL) -> bool:
    """Return True for the same host and port. Moving from http to https on the default ports counts as the same."""
    if old.host != new.host or (old.scheme == "https" and new.scheme == "http"):
        return False
    return old.port == new.port or (old.is_default_port() and new.is_default_port())
