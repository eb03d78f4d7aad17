"""The egress policy: the addresses that nodes may connect to.

It checks *addresses*, after name resolution, because a public name can point anywhere. The client must connect to
exactly the address that was checked (see `client`); a second lookup could return another one.
"""

from __future__ import annotations

import re
import socket
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from dalsegno.errors import BadConfiguration

ALLOW_VARIABLE = "DALSEGNO_EGRESS_ALLOW"

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_ALWAYS_PRIVATE: tuple[Network, ...] = (
    ip_network("100.64.0.0/10"),  # shared address space, including one cloud's metadata service
    ip_network("168.63.129.16/32"),  # a cloud's host agent behind a public address
    ip_network("192.0.0.0/24"),  # protocol assignments; another cloud's metadata service
    ip_network("192.88.99.0/24"),  # relays into tunnels, deprecated
    ip_network("198.18.0.0/15"),  # benchmarking
    ip_network("3fff::/20"),  # documentation
    ip_network("64:ff9b:1::/48"),  # translation inside one network
    ip_network("fec0::/10"),  # site-local, deprecated but routed by old networks
)
IDEOGRAPHIC_DOT = "\u3002"
_NAT64 = ip_network("64:ff9b::/96")
_HOST_PATTERN = re.compile(r"[a-z0-9_*?.-]+")
_LEGACY_IPV4 = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+)){0,3}\.?", re.IGNORECASE)


class EgressDenied(Exception):
    """The policy does not permit this connection."""

    def __init__(self, host: str, address: Address | None) -> None:
        self.host = host
        self.address = address
        where = f" ({address})" if address is not None and str(address) != host else ""
        super().__init__(
            f"connections to {host}{where} are blocked: the address is private, local or reserved. "
            f"The operator of the worker can allow it in {ALLOW_VARIABLE}"
        )


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """With ``block_private`` every non-public address is blocked, unless the lists permit it."""

    block_private: bool
    networks: tuple[Network, ...] = ()
    host_patterns: tuple[str, ...] = ()

    @classmethod
    def blocking(cls, allow: str | Iterable[str] = ()) -> EgressPolicy:
        """Return a policy that blocks non-public addresses but those in ``allow``.

        ``allow`` lists CIDRs, addresses and host patterns (``*.corp.example``).
        """
        entries = re.split(r"[\s,;]+", allow) if isinstance(allow, str) else list(allow)
        networks: list[Network] = []
        patterns: list[str] = []
        for entry in filter(None, entries):
            network = _network(entry)
            if network is not None:
                networks.append(network)
            else:
                patterns.append(_pattern(entry))
        return cls(block_private=True, networks=tuple(networks), host_patterns=tuple(patterns))

    def check(self, host: str, address: Address) -> None:
        """Raise EgressDenied unless the policy permits connecting to ``host`` at ``address``."""
        if not self.permits(host, address):
            raise EgressDenied(host, address)

    def permits(self, host: str, address: Address) -> bool:
        return not self.block_private or self._listed(host, address) or is_public(address)

    def _listed(self, host: str, address: Address) -> bool:
        if any(form in network for form in _forms(address) for network in self.networks):
            return True
        name = host.lower().rstrip(".")
        return any(fnmatchcase(name, pattern) for pattern in self.host_patterns)


ALLOW_EVERYTHING = EgressPolicy(block_private=False)


def policy_from_environment(environment: Mapping[str, str]) -> EgressPolicy:
    """Return the blocking policy with the exceptions of ``DALSEGNO_EGRESS_ALLOW``."""
    return EgressPolicy.blocking(environment.get(ALLOW_VARIABLE, ""))


def is_public(address: Address) -> bool:
    """Return True if the address, and every one embedded in it, is globally reachable and unicast."""
    return all(
        form.is_global
        and not (form.is_multicast or form.is_reserved or form.is_unspecified or form.is_link_local)
        and not any(form in network for network in _ALWAYS_PRIVATE)
        for form in _forms(address)
    )


def literal_address(host: str) -> Address | None:
    """Return the address that a host *is* rather than names, in any spelling; else None.

    Spellings are ``127.1``, ``2130706433``, ``0x7f.1``, ``[::1]``, and those with full-width digits or ideographic
    dots, which clients convert before they connect (UTS 46).
    """
    text = _ascii_form(host).strip("[]").partition("%")[0]
    try:
        return ip_address(text)
    except ValueError:
        pass
    if not _LEGACY_IPV4.fullmatch(text):
        return None
    try:
        return IPv4Address(socket.inet_aton(text.rstrip(".")))
    except OSError:
        return None


def _ascii_form(host: str) -> str:
    return host if host.isascii() else unicodedata.normalize("NFKC", host).replace(IDEOGRAPHIC_DOT, ".")


def _forms(address: Address) -> list[Address]:
    """Return the address itself and the IPv4 addresses embedded in an IPv6 address."""
    if isinstance(address, IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address in _NAT64:
        return [IPv4Address(int(address) & 0xFFFFFFFF)]
    tunnelled = [address.sixtofour, address.teredo[1] if address.teredo else None, _isatap(address)]
    return [address, *(form for form in tunnelled if form is not None)]


def _isatap(address: IPv6Address) -> IPv4Address | None:
    """Return the IPv4 address of an ISATAP tunnel, which is in the second half of the address under any prefix."""
    marked = (int(address) >> 32) & 0xFDFF_FFFF == 0x0000_5EFE
    return IPv4Address(int(address) & 0xFFFFFFFF) if marked else None


def _network(entry: str) -> Network | None:
    try:
        return ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        return None


def _pattern(entry: str) -> str:
    pattern = entry.lower().rstrip(".")
    if not _HOST_PATTERN.fullmatch(pattern) or _LEGACY_IPV4.fullmatch(pattern):
        raise BadConfiguration(
            f"{ALLOW_VARIABLE}: {entry!r} is not an address, CIDR or host pattern; "
            "write it like '10.0.0.0/8', 'localhost' or '*.corp.example', without scheme or port"
        )
    return pattern
