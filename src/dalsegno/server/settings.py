"""How one server listens and what it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

DEFAULT_PORT = 8700
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    names: tuple[str, ...] = ()
    """Names under which it is reached, beside its own address: what ``Host`` may say. ``*`` allows every name."""
    origins: tuple[str, ...] = ()
    """Other origins whose pages may call it, such as ``https://ops.example.com``."""
    body_bytes: int = 16 * 1024 * 1024
    """Of one request."""
    body_seconds: float = 30.0
    """In which a request's body must have arrived."""
    streams: int = 10_000
    """Event streams open at the same time; beyond that a 503."""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
