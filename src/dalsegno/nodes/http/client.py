"""The shared HTTP client: one aiohttp session per process, whose connections obey the egress policy.

* The session resolves names through `CheckedResolver` and connects to exactly the addresses that it returned.
* aiohttp does not resolve hosts that are already addresses. `CheckedConnector` checks these too, in the form in which
  aiohttp connects to them, for every request and redirect.
* `HttpClients.check_host` refuses them earlier, in any spelling.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import ip_address

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from dalsegno.nodes.http.egress import ALLOW_EVERYTHING, Address, EgressDenied, EgressPolicy, literal_address
from dalsegno.nodes.http.name_lookups import SharedResolver
from dalsegno.version import __version__

USER_AGENT = f"dalsegno/{__version__}"
MAX_CONNECTIONS = 500


class CheckedResolver(AbstractResolver):
    """Resolves a name and returns only the addresses that the policy permits."""

    def __init__(self, policy: EgressPolicy, inner: AbstractResolver) -> None:
        self._policy = policy
        self._inner = inner

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        try:
            found = await self._inner.resolve(host, port, family)
        except ValueError as error:
            # Empty or overlong labels: Python refuses them before it asks the system.
            raise OSError(None, f"no host name: {error}") from error
        permitted = [result for result in found if self._policy.permits(host, _address(result))]
        if found and not permitted:
            raise EgressDenied(host, _address(found[0]))
        return permitted

    async def close(self) -> None:
        await self._inner.close()


class CheckedConnector(aiohttp.TCPConnector):
    """Connects only to permitted addresses, whether they were resolved, cached or written in the URL."""

    def __init__(self, policy: EgressPolicy, inner: AbstractResolver) -> None:
        super().__init__(resolver=CheckedResolver(policy, inner), limit=MAX_CONNECTIONS, use_dns_cache=False)
        self._policy = policy

    async def _resolve_host(
        self, host: str, port: int, traces: Sequence[aiohttp.tracing.Trace] | None = None
    ) -> list[ResolveResult]:
        found = await super()._resolve_host(host, port, traces)
        for each in found:
            self._policy.check(host, _address(each))
        return found


def _address(result: ResolveResult) -> Address:
    return ip_address(result["host"].partition("%")[0])


class HttpClients:
    """Provides the session. The engine creates one of these, passes it to nodes as service ``http`` and closes it."""

    def __init__(
        self, egress: EgressPolicy = ALLOW_EVERYTHING, *, resolver: AbstractResolver | None = None
    ) -> None:
        self.egress = egress
        self._resolver = resolver
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def session(self) -> aiohttp.ClientSession:
        """Return the session; create it on first use and again for another event loop."""
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._loop is not loop:
            self._session, self._loop = self._new_session(), loop
        return self._session

    def check_host(self, host: str) -> None:
        """Raise EgressDenied for a host that is itself an address and not permitted."""
        address = literal_address(host)
        if address is not None:
            self.egress.check(host, address)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _new_session(self) -> aiohttp.ClientSession:
        inner = self._resolver or SharedResolver()
        return aiohttp.ClientSession(
            connector=CheckedConnector(self.egress, inner),
            cookie_jar=aiohttp.DummyCookieJar(),  # executions must not share cookies
            trust_env=False,  # a proxy from the environment would bypass the policy
            headers={"User-Agent": USER_AGENT},
            timeout=aiohttp.ClientTimeout(total=None),  # each exchange has its own deadline
        )
