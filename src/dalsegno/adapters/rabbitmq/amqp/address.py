"""The URL of a broker: ``amqp://user:password@host:5672/vhost``, ``amqps://…`` with TLS.

Parameters after ``?``: ``heartbeat`` and ``connection_timeout`` in seconds; for TLS ``cacertfile``, ``certfile``,
``keyfile`` and ``verify=verify_none``, as RabbitMQ's own clients name them.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from dalsegno.adapters.tls import unprotected
from dalsegno.errors import BadConfiguration

SCHEMES = ("amqp", "amqps")
PORTS = {"amqp": 5672, "amqps": 5671}
HEARTBEAT = 10
CONNECTION_TIMEOUT = 5.0
EXAMPLE = "amqp://user:password@host:5672/vhost"
_KNOWN = ("heartbeat", "connection_timeout", "cacertfile", "certfile", "keyfile", "verify")


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    user: str
    password: str
    vhost: str
    heartbeat: int = HEARTBEAT
    """Seconds between two signs of life; the broker may ask for a shorter time. 0: none."""
    connection_timeout: float = CONNECTION_TIMEOUT
    tls: ssl.SSLContext | None = None

    def __repr__(self) -> str:
        return f"Address({self.shown})"

    def risk(self) -> str:
        """Return what can happen to the connection on its way, as a sentence, or an empty string."""
        verified = self.tls is not None and self.tls.check_hostname
        return unprotected(self.host, "amqps://", encrypted=self.tls is not None, verified=verified)

    @property
    def shown(self) -> str:
        """The URL without its password."""
        scheme = "amqps" if self.tls is not None else "amqp"
        vhost = "" if self.vhost == "/" else f"/{self.vhost}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{self.user}@{host}:{self.port}{vhost}"


def parse_address(url: str) -> Address:
    """Return the address of a URL. No error message contains the URL: it may hold a password."""
    parts = urlsplit(url)
    if parts.scheme.lower() not in SCHEMES:
        raise BadConfiguration(
            f"the URL of the broker does not begin with amqp:// or amqps://; write {EXAMPLE}"
        )
    try:
        port = parts.port or PORTS[parts.scheme.lower()]
    except ValueError:
        raise BadConfiguration(
            "the port in the URL of the broker is no number from 0 to 65535; a '/', '#' or '@' in the password is "
            f"written %2F, %23 or %40; write {EXAMPLE}"
        ) from None
    if parts.fragment or parts.path.count("/") > 1:
        raise BadConfiguration(
            "the URL of the broker has more than a vhost behind the host; a '/' in a vhost's name is written %2F"
        )
    options = _options(parts.query)
    return Address(
        host=parts.hostname or "localhost",
        port=port,
        user=unquote(parts.username) if parts.username is not None else "guest",
        password=unquote(parts.password) if parts.password is not None else "guest",
        vhost=unquote(parts.path[1:]) or "/",
        heartbeat=round(_number(options, "heartbeat", HEARTBEAT)),
        connection_timeout=_number(options, "connection_timeout", CONNECTION_TIMEOUT) or CONNECTION_TIMEOUT,
        tls=_tls(options) if parts.scheme.lower() == "amqps" else None,
    )


def _options(query: str) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in _KNOWN:
            raise BadConfiguration(
                f"the URL of the broker has the unknown parameter {name!r}; known: {', '.join(_KNOWN)}"
            )
    return options


def _number(options: dict[str, str], name: str, default: float) -> float:
    try:
        value = float(options.get(name, default))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 60_000:
        raise BadConfiguration(f"the parameter {name!r} in the URL of the broker is no number of seconds")
    return value


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.get("cacertfile"))
        if options.get("certfile"):
            context.load_cert_chain(options["certfile"], options.get("keyfile"))
    except (OSError, ssl.SSLError) as error:
        raise BadConfiguration(f"a certificate in the URL of the broker cannot be used: {error}") from None
    verify = options.get("verify", "verify_peer")
    if verify not in {"verify_peer", "verify_none"}:
        raise BadConfiguration(
            "the parameter 'verify' in the URL of the broker is verify_peer or verify_none"
        )
    if verify == "verify_none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
