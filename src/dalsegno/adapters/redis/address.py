"""The URL of one Redis or of a Sentinel, and the clients made from it.

- ``redis://user:password@host:6379/0``, ``rediss://…`` with TLS; ``?ssl_ca_certs=FILE`` names the authority that
  signed the server's certificate, ``ssl_certfile`` and ``ssl_keyfile`` a certificate of this client.
- ``redis+sentinel://user:password@host1:26379,host2/name/0``, ``rediss+sentinel://…``: the Sentinels that know the
  primary called ``name``. ``?sentinel_username=…&sentinel_password=…`` are for the Sentinels themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from redis.asyncio import Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

from dalsegno.adapters.redis.errors import BROKEN
from dalsegno.adapters.tls import unprotected
from dalsegno.adapters.urls import authority_of, scheme_of, shown_url
from dalsegno.errors import BadConfiguration

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 10.0
"""Seconds in which the server must answer a command, beside the time that the command itself may block."""
SENTINEL_PORT = 26379
SENTINEL_SCHEMES = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}


@dataclass(frozen=True, slots=True)
class Address:
    """Where Redis is. ``options`` are those of the driver."""

    options: dict[str, Any] = field(repr=False)
    service: str = ""
    sentinels: tuple[tuple[str, int], ...] = ()
    sentinel_options: dict[str, Any] | None = field(default=None, repr=False)

    def risk(self) -> str:
        """Return what can happen to the connection on its way, as a sentence, or an empty string."""
        hosts = [host for host, _ in self.sentinels] or [str(self.options.get("host", "localhost"))]
        encrypted = bool(self.options.get("ssl"))
        verified = bool(self.options.get("ssl_check_hostname"))
        risks = [unprotected(host, "rediss://", encrypted=encrypted, verified=verified) for host in hosts]
        return next(filter(None, risks), "")

    @property
    def database(self) -> int:
        return int(self.options.get("db", 0))

    def client(self, *, limits_answers: bool = True) -> Redis:
        """Return a client. Without ``limits_answers`` its user limits the time in which the server must answer."""
        options = {
            "socket_connect_timeout": CONNECT_SECONDS,
            "socket_keepalive": True,
            "client_name": "dalsegno",
            "protocol": 2,
            "retry": Retry(NoBackoff(), 0),
            **self.options,
            "socket_timeout": ANSWER_SECONDS if limits_answers else None,
        }
        if not self.sentinels:
            return Redis(**options)
        for_sentinels = {
            "socket_connect_timeout": CONNECT_SECONDS,
            "socket_timeout": CONNECT_SECONDS,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
            **(self.sentinel_options or {}),
        }
        make: Any = Sentinel
        found = make(list(self.sentinels), sentinel_kwargs=for_sentinels)
        client: Redis = found.master_for(self.service, **options)
        return client


async def close_client(client: Redis) -> None:
    """Close a client, and the connections to Sentinels that it uses."""
    manager: Any = getattr(client.connection_pool, "sentinel_manager", None)
    for each in (client, *(manager.sentinels if manager is not None else ())):
        with contextlib.suppress(*BROKEN):
            await each.aclose()
    await asyncio.sleep(0)  # transports close in the next turn of the loop


def read_address(url: str) -> Address:
    """Parse the URL. Raises an error that shows no password."""
    try:
        return _sentinel(url) if scheme_of(url) in SENTINEL_SCHEMES else Address(_options(url))
    except (TypeError, ValueError) as error:
        # An error of the parser may quote a part of the password.
        why = (
            error if isinstance(error, _Malformed) else "special characters of a password are written as %XX"
        )
        raise BadConfiguration(
            f"the URL {shown_url(url)!r} of Redis is not valid: {why}; write redis://user:password@host:6379/0"
        ) from None


class _Malformed(ValueError):
    """A URL whose fault is described without quoting a password."""


def _options(url: str) -> dict[str, Any]:
    options: dict[str, Any] = dict(parse_url(url))
    encrypted = options.pop("connection_class", None) is not None
    unknown = [name for name in options if name not in KNOWN and not name.startswith("ssl_")]
    if unknown:
        raise _Malformed(f"it has the unknown option {unknown[0]!r}")
    if not encrypted:
        return options
    verified = options.get("ssl_cert_reqs", "required") != "none"
    return {"ssl_check_hostname": verified, **options, "ssl": True}


KNOWN = frozenset(
    (
        "host",
        "port",
        "db",
        "username",
        "password",
        "socket_connect_timeout",
        "client_name",
        "health_check_interval",
    )
)


def _sentinel(url: str) -> Address:
    authority = authority_of(url)
    login, _, hosts = authority.rpartition("@")
    parts = urlsplit("//host" + url.partition("://")[2][len(authority) :])
    service, _, database = parts.path.strip("/").partition("/")
    if not service or not hosts:
        raise _Malformed("it names no primary; write redis+sentinel://host1,host2/NAME")
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    own = {
        name: query.pop(f"sentinel_{name}")
        for name in ("username", "password")
        if f"sentinel_{name}" in query
    }
    scheme = SENTINEL_SCHEMES[scheme_of(url)]
    options = _options(f"{scheme}://{login + '@' if login else ''}host/{database or 0}?{urlencode(query)}")
    del options["host"]
    tls = {name: value for name, value in options.items() if name.startswith("ssl")}
    return Address(options, unquote(service), tuple(map(_host, hosts.split(","))), {**tls, **own})


def _host(text: str) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise _Malformed(f"{text!r} is no host of a Sentinel")
    return parts.hostname, parts.port or SENTINEL_PORT
