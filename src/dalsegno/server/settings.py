"""Settings of one server: addresses, limits and timeouts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address

from dalsegno.admin.keys import NO_QUOTAS, Quotas

DEFAULT_PORT = 8700
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    names: tuple[str, ...] = ()
    """Names under which the server is reached, in addition to its own address: the allowed values of ``Host``.
    ``*`` allows every name, once there are keys.
    """
    origins: tuple[str, ...] = ()
    """Other origins whose pages may call the server, such as ``https://ops.example.com``."""
    body_bytes: int = 16 * 1024 * 1024
    """Largest body of a request."""
    body_seconds: float = 30.0
    """Time in which a request's body must have arrived."""
    header_seconds: float = 15.0
    """Time in which a request's line and headers must have arrived; a connection that sends nothing is closed then.
    """
    idle_seconds: int = 75
    """Time after which a connection without a further request is closed: longer than the timeout of common load
    balancers (60 s), which would otherwise send requests into connections that are being closed."""
    reply_seconds: float = 30.0
    """Time in which a client must read each 48 KiB of a long reply, and the end of every reply; otherwise it is
    disconnected."""
    large_bytes: int = 64 * 1024 * 1024
    """Bytes of inputs, outputs and results over 1 MiB that all calls hold at the same time. Further calls wait, 10
    s at most, and then get a 503 with ``Retry-After``. While calls wait, a client that reads less than 1 MiB a
    second of such a reply, after its first ``reply_seconds``, is disconnected."""
    change_seconds: float = 30.0
    """Time in which the store must confirm the changes of a call; then the caller receives "outcome unknown".
    Shorter than the timeout of common clients (60 s), which would not learn what to do."""
    read_seconds: float = 30.0
    """Time in which the store must answer a call that only reads; then the call is cancelled and answered with an
    error."""
    streams: int = 10_000
    """Event streams and waiting calls open at the same time, at most three quarters of the files that the process
    may open; beyond that a 503. One key has at most three quarters of them."""
    task_lease: float = 30.0
    """Time after the last heartbeat at which a remote worker loses its tasks."""
    task_confirm: float = 10.0
    """Time in which a remote worker must confirm a task that it claimed."""
    keys_seconds: float = 2.0
    """Time after which a key that another process added or revoked, or that expired, takes effect here."""
    session_seconds: float = 12 * 3600.0
    """Lifetime of a session."""
    failures: int = 10
    """Wrong keys from one address within a minute; beyond that the address has to wait."""
    public_rate: int = 600
    """Calls a minute from one address to sign in, to approval pages and to webhooks that do not exist; beyond that
    a 429 with ``Retry-After``."""
    audit_seconds: float | None = 365 * 86_400.0
    """Time for which entries of the audit log are kept; None keeps them."""
    audit_rows: int | None = 1_000_000
    """Approximate maximum of audit log entries; the oldest are removed first. None keeps all."""
    quotas: Quotas = NO_QUOTAS
    """Quotas of keys without quotas of their own; unlimited unless they are set."""

    check_processes: int = 2
    """Processes for large checks: definitions, schemas, YAML. They start on demand."""
    check_seconds: float = 15.0
    """Time limit of one check."""
    check_memory: int = 1024 * 1024 * 1024
    """Address space of one such process, in bytes."""
    check_queue: int = 16
    """Waiting checks of one caller; beyond that a 503."""

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
