"""How one server listens and what it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address

from dalsegno.server.quotas import NO_QUOTAS, Quotas

DEFAULT_PORT = 8700
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    names: tuple[str, ...] = ()
    """Names under which it is reached, beside its own address: what ``Host`` may say. ``*`` allows every name, once
    there are keys."""
    origins: tuple[str, ...] = ()
    """Other origins whose pages may call it, such as ``https://ops.example.com``."""
    body_bytes: int = 16 * 1024 * 1024
    """Of one request."""
    body_seconds: float = 30.0
    """In which a request's body must have arrived."""
    header_seconds: float = 15.0
    """In which a request's line and headers must have arrived; a connection that sends nothing is closed then."""
    idle_seconds: int = 75
    """After which a connection without a further request is closed: later than common load balancers do it (60 s),
    which would otherwise send requests into connections that are being closed."""
    reply_seconds: float = 30.0
    """In which a client must take each 48 KiB of a long reply, and the end of every reply; then it is disconnected."""
    large_bytes: int = 64 * 1024 * 1024
    """Of inputs, outputs and results over 1 MiB that calls hold at the same time. Others wait for their turn, 10 s at
    most; beyond that a 503 with ``Retry-After``. While others wait, a client that takes less than 1 MiB a second of
    such a reply, after its first ``reply_seconds``, is disconnected."""
    change_seconds: float = 30.0
    """In which the store must confirm what a call changes; then its caller is told that the outcome is unknown. Sooner
    than common clients give up (60 s), which would not learn what to do then."""
    read_seconds: float = 30.0
    """In which the store must answer a call that only reads; then it is given up, and its caller told so."""
    streams: int = 10_000
    """Event streams and waiting calls open at the same time, at most three quarters of the files that the process may
    open; beyond that a 503. One key has at most three quarters of them."""
    task_lease: float = 30.0
    """A remote worker that is silent for this long has lost its tasks."""
    task_confirm: float = 10.0
    """Within which it must show that it knows of a task it was given."""
    keys_seconds: float = 2.0
    """After which a key that was added, revoked or that expired elsewhere counts here."""
    session_seconds: float = 12 * 3600.0
    """How long somebody stays signed in."""
    failures: int = 10
    """Wrong keys from one address within a minute; after that it is told to wait."""
    public_rate: int = 600
    """Calls a minute from one address to sign in, to approval pages and to webhooks that do not exist; beyond that a
    429 with ``Retry-After``."""
    audit_seconds: float | None = 365 * 86_400.0
    """How long entries of the audit log are kept; None keeps them."""
    audit_rows: int | None = 1_000_000
    """Entries of the audit log that are kept at most, about; the oldest go first. None keeps them."""
    quotas: Quotas = NO_QUOTAS
    """Of keys that have none of their own; without limits unless they are set."""

    check_processes: int = 2
    """Processes for large checks: definitions, schemas, YAML. They start when they are needed."""
    check_seconds: float = 15.0
    """Of one check."""
    check_memory: int = 1024 * 1024 * 1024
    """Address space of one such process, in bytes."""
    check_queue: int = 16
    """Checks of one caller that wait; beyond that a 503."""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.host)


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
