"""The credentials port: credentials as a running node or task in a worker uses them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

EVERYTHING = "*"
USUAL_PORTS = {"http": 80, "https": 443}
CONNECTION_HEADERS = frozenset(
    (
        "connection",
        "content-length",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
"""Request headers that belong to the connection: the HTTP client writes them, never a workflow or a credential.

``Host`` chooses the service behind an address, so a token could go to another service than the one that was
checked. The others frame the message or configure the connection; a wrong one lets a proxy read the request
differently.
"""
PROXY_PREFIX = "proxy-"


class Credential(Mapping[str, str]):
    """A credential with its values in the clear. It exists only while a node or task runs.

    Its values do not appear in a message, a log line or a debugger, and no store can hold it.
    """

    __slots__ = ("_values", "hosts", "name", "sent_as", "type")

    def __init__(
        self, name: str, type: str, values: Mapping[str, str], hosts: Sequence[str] = (), sent_as: str = ""
    ) -> None:
        self.name = name
        self.type = type
        self.hosts = tuple(hosts)
        self.sent_as = sent_as
        """The header or query parameter that carries it, if its type needs one."""
        self._values = dict(values)

    def __getitem__(self, field: str) -> str:
        if field in self._values:
            return self._values[field]
        listed = ", ".join(f"'{name}'" for name in self._values) or "none"
        raise KeyError(f"credential '{self.name}' has no field '{field}'; it has {listed}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<credential '{self.name}' of type {self.type}>"

    def permits_host(
        self, host: str, port: int | None = None, scheme: str = "https", *, verified: bool = True
    ) -> bool:
        """Return True if the credential's list of hosts permits this one. An empty list permits none.

        ``port``: None is the scheme's default port; ``verified``: the server's certificate is checked.
        """
        return any(host_fits(entry, host, port, scheme, verified=verified) for entry in self.hosts)


class Secrets(Protocol):
    """The source of credentials for workers.

    * **S1 sealed**: what is stored can be read only with a key that is not in the store.
    * **S2 bound**: without that key no stored value can be moved to another credential or field, and no list of
      hosts or workflows be changed.
    * **S3 fresh**: a change or removal applies from the next ``resolve`` on.
    * **S4 approved**: if a credential lists workflows, a definition needs a listed name and an admin's approval of
      its content.
    """

    async def resolve(self, name: str, workflow: str, definition: str | None = None) -> Credential:
        """Return a credential for a definition (``definition`` is its content hash).

        Raises CredentialNotFound, CredentialRefused (not for this workflow), DefinitionNotApproved, NoSecretKey or
        SecretUnreadable.
        """


@dataclass(frozen=True, slots=True)
class HostEntry:
    """An entry of a credential's list of hosts.

    ``api.example.com`` means https on port 443, ``api.example.com:8443`` https on that port, and ``:*`` any port.
    ``http://…`` also allows plain http there, and certificates that are not checked. ``*.example.com`` means its
    subdomains, without example.com itself; ``*`` is any host.
    """

    host: str
    port: int | None
    """None: the scheme's default port."""
    any_port: bool
    plain: bool
    """Plain http is allowed."""

    @classmethod
    def parse(cls, text: str) -> HostEntry:
        """Parse an entry; raises ValueError for an invalid scheme or port."""
        lowered = text.lower()
        scheme, sign, rest = lowered.rpartition("://")
        if sign and scheme not in USUAL_PORTS:
            raise ValueError(f"{scheme!r} is neither http nor https")
        host, colon, port = rest.rpartition(":")
        if not colon or port.endswith("]"):
            return cls(rest, None, any_port=False, plain=scheme == "http")
        if port == EVERYTHING:
            return cls(host, None, any_port=True, plain=scheme == "http")
        if not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
            raise ValueError(f"{port!r} is no port")
        return cls(host, int(port), any_port=False, plain=scheme == "http")

    def names(self, host: str) -> bool:
        """Return True if it covers this host, on any port."""
        name = host.lower().strip("[]").rstrip(".")
        wanted = self.host.strip("[]").rstrip(".")
        if wanted in (EVERYTHING, name):
            return True
        return wanted.startswith("*.") and name.endswith(wanted[1:])

    def permits(self, port: int | None, scheme: str, *, verified: bool) -> bool:
        if not self.plain and (scheme != "https" or not verified):
            return False
        usual = USUAL_PORTS.get(scheme)
        return self.any_port or (port or usual) == (self.port or usual)


def host_fits(
    entry: str, host: str, port: int | None = None, scheme: str = "https", *, verified: bool = True
) -> bool:
    found = HostEntry.parse(entry)
    return found.names(host) and found.permits(port, scheme, verified=verified)


def host_entry(host: str, port: int | None, scheme: str, *, verified: bool = True) -> str:
    """Return the entry that permits this address and nothing else."""
    shown = f"[{host}]" if ":" in host else host
    if port is not None and port != USUAL_PORTS.get(scheme):
        shown = f"{shown}:{port}"
    return shown if scheme == "https" and verified else f"http://{shown}"


def is_connection_header(name: str) -> bool:
    lowered = name.lower()
    return lowered in CONNECTION_HEADERS or lowered.startswith(PROXY_PREFIX)
