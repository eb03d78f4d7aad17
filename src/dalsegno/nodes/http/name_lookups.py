"""Name lookups for HTTP clients: in their own threads, shared fairly between requesters.

The system's resolver blocks its thread until a name server answers or the system gives up, which may take half a
minute, even if the request has ended. Therefore:

* No lookup runs in the threads of the event loop's executor, which hash blobs and redact outputs.
* A requester (a workflow, an alert) has at most `SHARE` lookups at a time; its others wait for their turn.
* A lookup whose request has ended keeps its place until the system returns. While such lookups hold the whole share
  of a requester, its requests for uncached names are refused at once with `LookupsBusy`.
* A name that was found is cached for `REMEMBERED_SECONDS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import OrderedDict, deque
from collections.abc import Callable
from contextvars import ContextVar
from threading import Thread
from typing import Any, Final
from weakref import WeakKeyDictionary

from aiohttp.abc import AbstractResolver, ResolveResult

SHARE: Final = 8
"""Concurrent lookups of one requester."""
MOST: Final = 64
"""Concurrent lookups of all requesters; each has a thread."""
REMEMBERED_SECONDS: Final = 10.0
REMEMBERED_NAMES: Final = 1000

on_behalf_of: ContextVar[str] = ContextVar("dalsegno-lookup-requester", default="")
"""The requester of the lookups that the current asyncio task makes."""

Name = tuple[str, int, int]
"""Host, port and address family."""
_ZONE = 3
"""Index of an IPv6 address's zone among the fields of a socket address."""
_NUMERIC = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV


class LookupsBusy(Exception):
    """Abandoned lookups hold the requester's whole share."""

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(
            f"the name '{host}' was not looked up: {SHARE} earlier lookups of the same workflow still wait for a name "
            "server that does not answer, although their requests have ended. Nothing was sent; try again later, and "
            "check the host names of the workflow and the name servers of the machine"
        )


class _Share:
    """The lookups of one requester. ``abandoned`` counts those that still run although their requests have ended."""

    __slots__ = ("abandoned", "running", "waiting")

    def __init__(self) -> None:
        self.running = 0
        self.abandoned = 0
        self.waiting: deque[tuple[str, asyncio.Future[None]]] = deque()

    @property
    def is_stuck(self) -> bool:
        return self.abandoned >= SHARE


class NameLookups:
    """The lookups of one event loop."""

    def __init__(self) -> None:
        self._shares: OrderedDict[str, _Share] = OrderedDict()
        """In the order in which requesters get free places."""
        self._running = 0
        self._found: OrderedDict[Name, tuple[float, list[ResolveResult]]] = OrderedDict()

    async def addresses(self, host: str, port: int, family: int) -> list[ResolveResult]:
        """Return the addresses of a name; raise OSError and ValueError as the system does, or LookupsBusy."""
        name = host, port, family
        known = self._remembered(name)
        if known is not None:
            return known
        requester = on_behalf_of.get()
        share = await self._place(requester, host)
        known = self._remembered(name)  # another request may have found it meanwhile
        if known is not None:
            self._release(requester, share)
            return known
        return await self._looked_up(requester, share, name)

    async def _looked_up(self, requester: str, share: _Share, name: Name) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[ResolveResult]] = loop.create_future()
        try:
            Thread(target=_run, args=(loop, found, name), name="dalsegno-names", daemon=True).start()
        except RuntimeError as error:  # the system has no thread left
            self._release(requester, share)
            raise OSError(None, str(error)) from error
        try:
            await asyncio.wait((found,))
        except asyncio.CancelledError:
            share.abandoned += 1
            found.add_done_callback(lambda over: self._end_abandoned(requester, share, over))
            self._refuse_if_stuck(share)
            raise
        if found.exception() is None:
            self._remember(name, found.result())
        self._release(requester, share)
        return found.result()

    def _end_abandoned(
        self, requester: str, share: _Share, over: asyncio.Future[list[ResolveResult]]
    ) -> None:
        over.exception()  # retrieved, so that asyncio does not log it
        share.abandoned -= 1
        self._release(requester, share)

    # -- places -----------------------------------------------------------------------------------------------------

    async def _place(self, requester: str, host: str) -> _Share:
        share = self._shares.setdefault(requester, _Share())
        if share.is_stuck:
            raise LookupsBusy(host)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        share.waiting.append((host, turn))
        self._grant()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._release(requester, share)
            raise
        finally:
            with contextlib.suppress(ValueError):
                share.waiting.remove((host, turn))
            self._forget_if_idle(requester, share)
        return share

    def _grant(self) -> None:
        """Give free places to the requesters in turn. A requester that got one moves to the end."""
        for requester in list(self._shares):
            share = self._shares[requester]
            if self._running >= MOST:
                return
            while share.waiting and share.running < SHARE and self._running < MOST:
                _, turn = share.waiting.popleft()
                if not turn.done():
                    turn.set_result(None)
                    share.running += 1
                    self._running += 1
                    self._shares.move_to_end(requester)

    def _release(self, requester: str, share: _Share) -> None:
        share.running -= 1
        self._running -= 1
        self._forget_if_idle(requester, share)
        self._grant()

    def _refuse_if_stuck(self, share: _Share) -> None:
        while share.is_stuck and share.waiting:
            host, turn = share.waiting.popleft()
            if not turn.done():
                turn.set_exception(LookupsBusy(host))

    def _forget_if_idle(self, requester: str, share: _Share) -> None:
        if not share.running and not share.waiting and self._shares.get(requester) is share:
            del self._shares[requester]

    # -- what was found ---------------------------------------------------------------------------------------------

    def _remembered(self, name: Name) -> list[ResolveResult] | None:
        until, found = self._found.get(name, (0.0, None))
        return found if until > asyncio.get_running_loop().time() else None

    def _remember(self, name: Name, found: list[ResolveResult]) -> None:
        self._found[name] = asyncio.get_running_loop().time() + REMEMBERED_SECONDS, found
        self._found.move_to_end(name)
        if len(self._found) > REMEMBERED_NAMES:
            self._found.popitem(last=False)


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, NameLookups] = WeakKeyDictionary()


def lookups_of_this_loop() -> NameLookups:
    """Return the lookups of the running event loop, which all its clients share."""
    return _of_loops.setdefault(asyncio.get_running_loop(), NameLookups())


class SharedResolver(AbstractResolver):
    """Resolves names for aiohttp. Its connector must not have a cache of its own (``use_dns_cache=False``).

    With such a cache this resolver would not learn that a request has ended.
    """

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return await lookups_of_this_loop().addresses(host, port, family)

    async def close(self) -> None:
        """Do nothing: the lookups belong to the event loop."""


# -- in a thread -----------------------------------------------------------------------------------------------


def _run(loop: asyncio.AbstractEventLoop, found: asyncio.Future[list[ResolveResult]], name: Name) -> None:
    try:
        value = _found(*name)
    except Exception as error:  # noqa: BLE001 - for the request that waits
        _call_in_loop(loop, found.set_exception, error)
    else:
        _call_in_loop(loop, found.set_result, value)


def _call_in_loop(loop: asyncio.AbstractEventLoop, callback: Callable[[Any], None], what: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(callback, what)


def _found(host: str, port: int, family: int) -> list[ResolveResult]:
    entries = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [
        ResolveResult(
            hostname=host,
            host=_numeric_host(address),
            port=int(address[1]),
            family=kind,
            proto=protocol,
            flags=_NUMERIC,
        )
        for kind, _, protocol, _, address in entries
    ]


def _numeric_host(address: Any) -> str:
    """Return the address with its zone if it is link-local; the zone is part of such an address."""
    if len(address) > _ZONE and address[_ZONE]:
        return socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0]
    return str(address[0])
