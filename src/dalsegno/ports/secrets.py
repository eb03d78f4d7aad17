"""Credentials as those see them who use them: a node, or a task, in a worker, while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

EVERYTHING = "*"


class Credential(Mapping[str, str]):
    """A credential with its values in the clear. It exists only while a node or task runs.

    It says nothing about its values in a message, a log line or a debugger, and no store can hold it.
    """

    __slots__ = ("_values", "hosts", "name", "sent_as", "type")

    def __init__(
        self, name: str, type: str, values: Mapping[str, str], hosts: Sequence[str] = (), sent_as: str = ""
    ) -> None:
        self.name = name
        self.type = type
        self.hosts = tuple(hosts)
        self.sent_as = sent_as
        """The header or query parameter that carries it, where its type needs one."""
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

    def permits_host(self, host: str, port: int | None = None) -> bool:
        """Whether its list of hosts has this one. An empty list has none."""
        return any(host_fits(pattern, host, port) for pattern in self.hosts)


class Secrets(Protocol):
    """Where workers find credentials.

    * **S1 sealed**: what is stored can be read only with a key that is not in the store.
    * **S2 bound**: without that key no stored value can be moved to another credential or field, and no list of hosts
      or workflows be changed.
    * **S3 fresh**: what was changed or removed counts from the next ``resolve`` on.
    """

    async def resolve(self, name: str, workflow: str) -> Credential:
        """Raises CredentialNotFound, CredentialRefused (not for this workflow), NoSecretKey or SecretUnreadable."""


def host_fits(pattern: str, host: str, port: int | None) -> bool:
    """``api.example.com``, ``api.example.com:8443``, ``*.example.com`` (not example.com itself), ``[::1]``, ``*``."""
    wanted, wanted_port = split_port(pattern.lower())
    if wanted_port is not None and wanted_port != port:
        return False
    name = host.lower().strip("[]").rstrip(".")
    wanted = wanted.strip("[]").rstrip(".")
    if wanted in (EVERYTHING, name):
        return True
    return wanted.startswith("*.") and name.endswith(wanted[1:])


def split_port(pattern: str) -> tuple[str, int | None]:
    """A host pattern without its port, and the port. Raises ValueError for a port that is none."""
    host, sign, port = pattern.rpartition(":")
    if not sign or port.endswith("]"):
        return pattern, None
    number = int(port)
    if not 0 < number < 65_536:
        raise ValueError(f"{number} is no port")
    return host, number
