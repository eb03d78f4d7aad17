"""``dalsegno.Client``: deploy, start, watch and steer the workflows of a server."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from typing import Any, Self, TypeVar, Unpack

import httpx

from dalsegno.client.archive import Checked, ServerArchive, Source
from dalsegno.client.calls import ServerCalls
from dalsegno.client.schedules import ClientSchedules, ServerBook
from dalsegno.client.stream import stream_events
from dalsegno.client.transport import Transport, checked_url
from dalsegno.engine.delays import Duration, Moment
from dalsegno.engine.filters import ExecutionFilters, filter_of
from dalsegno.engine.starting import StartOptions
from dalsegno.errors import UsageError
from dalsegno.handle import Handle
from dalsegno.hosting import LoopHost
from dalsegno.model.definition import Definition
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionView

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8700"


class Client:
    """The server behind ``url`` (default: ``DALSEGNO_SERVER``, else this machine's), asked with ``key`` (default:
    ``DALSEGNO_KEY``).

    Every call has an async twin with the prefix ``a``. Connections stay open until ``close``, or until a ``with`` or
    ``async with`` block ends.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        patience: float = 30.0,
        wire: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """``patience``: for so many seconds calls try again while the server is out of reach. ``wire``: another way to
        the server than the network."""
        self.url = url if url is not None else os.environ.get("DALSEGNO_SERVER", DEFAULT_URL)
        self._key = key if key is not None else os.environ.get("DALSEGNO_KEY") or None
        self._patience = patience
        self._wire = wire
        self._host: LoopHost | None = None
        self._calls: ServerCalls | None = None
        self._opening = threading.RLock()
        """Threads may make the first call at the same time."""
        self.schedules = ClientSchedules(self, lambda: ServerBook(self._open()))
        """Cron in the server's store."""
        checked_url(self.url)

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    # -- definitions ------------------------------------------------------------------------------------------

    def deploy(self, document: Source, name: str | None = None) -> Definition:
        """Checks and stores a graph document there; the same content again is the same version."""
        return self._call(self._archive().deploy(document, name))

    async def adeploy(self, document: Source, name: str | None = None) -> Definition:
        return await self._acall(self._archive().deploy(document, name))

    def deploy_script(self, source: str, name: str | None = None) -> Definition:
        """Compiles and stores a ``.flow`` script there; ``name`` is for those that have none."""
        return self._call(self._archive().deploy(source, name, script=True))

    async def adeploy_script(self, source: str, name: str | None = None) -> Definition:
        return await self._acall(self._archive().deploy(source, name, script=True))

    def validate(self, source: Source, name: str | None = None, *, script: bool = False) -> Checked:
        """Everything that is wrong with a document or script, at once; nothing is stored."""
        return self._call(self._archive().validate(source, name, script=script))

    async def avalidate(self, source: Source, name: str | None = None, *, script: bool = False) -> Checked:
        return await self._acall(self._archive().validate(source, name, script=script))

    # -- executions -------------------------------------------------------------------------------------------

    def with_options(
        self,
        *,
        idempotency_key: str | None = None,
        tags: Mapping[str, str] | None = None,
        version: int | str | None = None,
        priority: int = 0,
        delay: Duration | None = None,
        start_at: Moment | None = None,
    ) -> Starter:
        """Options for the next start: ``client.with_options(idempotency_key="o-1").start("checkout", …)``. With
        ``delay`` or ``start_at`` it is PENDING until then; ``handle.trigger()`` begins it before."""
        key = idempotency_key
        return Starter(self, StartOptions(version, key, dict(tags or {}), priority, delay, start_at))

    def start(self, workflow: str, /, *args: Any, **fields: Any) -> Handle:
        """Starts a deployed workflow (``"checkout"``, ``"checkout@stable"``) with one value, or with keywords that make
        an object. A start that gets no answer is sent again and happens once."""
        return Starter(self, StartOptions()).start(workflow, *args, **fields)

    async def astart(self, workflow: str, /, *args: Any, **fields: Any) -> Handle:
        return await Starter(self, StartOptions()).astart(workflow, *args, **fields)

    def submit(self, workflow: str, /, *args: Any, **fields: Any) -> Handle:
        """A start in two steps: everything is checked, and the execution is PENDING until ``handle.trigger()`` begins
        it, with this input or with another one."""
        return Starter(self, StartOptions()).submit(workflow, *args, **fields)

    async def asubmit(self, workflow: str, /, *args: Any, **fields: Any) -> Handle:
        return await Starter(self, StartOptions()).asubmit(workflow, *args, **fields)

    def handle(self, execution: str) -> Handle:
        """An execution by id. Making a handle costs nothing and checks nothing."""
        return Handle(self, execution)

    def executions(
        self, workflow: str | None = None, *, page: int = 100, **filters: Unpack[ExecutionFilters]
    ) -> Iterator[ExecutionView]:
        """Newest first, without inputs and outputs; ``page`` of them are fetched at a time, as they are needed."""
        return self._iterate(self.client.all_executions(filter_of(workflow, filters), page))

    def aexecutions(
        self, workflow: str | None = None, *, page: int = 100, **filters: Unpack[ExecutionFilters]
    ) -> AsyncIterator[ExecutionView]:
        return self._aiterate(self.client.all_executions(filter_of(workflow, filters), page))

    def stream(self, execution: str | Handle, after: int = 0) -> Iterator[Event]:
        """Events as they happen, each once and in order, until the execution has ended. A connection that breaks is
        made again where it broke. ``after``: only those with a higher number."""
        return self._iterate(stream_events(self._open(), _id(execution), after))

    def astream(self, execution: str | Handle, after: int = 0) -> AsyncIterator[Event]:
        return self._aiterate(stream_events(self._open(), _id(execution), after))

    # -- coming and going -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes its connections; calls that wait fail. A later call opens new ones."""
        host, calls = self._parted()
        if host is not None and calls is not None:
            host.call(calls.transport.close())
        if host is not None:
            host.end_thread()

    async def aclose(self) -> None:
        host, calls = self._parted()
        if host is not None and calls is not None:
            await host.acall(calls.transport.close())
        if host is not None:
            host.end_thread()

    def _parted(self) -> tuple[LoopHost | None, ServerCalls | None]:
        with self._opening:
            parted = self._host, self._calls
            self._host = self._calls = None
            return parted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        """Inside, everything happens on this loop."""
        if self._host is None:
            self._host = LoopHost()
            self._host.begin_here()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # -- inside -----------------------------------------------------------------------------------------------

    @property
    def host(self) -> LoopHost:
        """Where its requests run: in a thread of its own, unless it is used as ``async with``."""
        with self._opening:
            if self._host is None:
                self._host = LoopHost()
                self._host.begin_thread()
            return self._host

    @property
    def client(self) -> ServerCalls:
        """What handles ask."""
        with self._opening:
            if self._calls is None:
                transport = Transport(self.url, self._key, patience=self._patience, wire=self._wire)
                self._calls = ServerCalls(transport)
            return self._calls

    def _archive(self) -> ServerArchive:
        return ServerArchive(self._open())

    def _open(self) -> Transport:
        return self.client.transport

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self.host.call(work)

    async def _acall(self, work: Coroutine[Any, Any, T]) -> T:
        return await self.host.acall(work)

    def _iterate(self, values: AsyncIterator[T]) -> Iterator[T]:
        host = self.host
        try:
            while found := host.call(_next(values)):
                yield found[0]
        finally:
            if host.loop is not None:  # otherwise its connections were closed with the client
                host.call(_close(values))

    async def _aiterate(self, values: AsyncIterator[T]) -> AsyncIterator[T]:
        host = self.host
        try:
            while found := await host.acall(_next(values)):
                yield found[0]
        finally:
            if host.loop is not None:
                await host.acall(_close(values))


class Starter:
    """Starts with options chosen beforehand."""

    __slots__ = ("_client", "_options")

    def __init__(self, client: Client, options: StartOptions) -> None:
        self._client = client
        self._options = options

    def start(self, workflow: str, /, *args: Any, **fields: Any) -> Handle:
        return self._client.host.call(self._start(workflow, args, fields))

    async def astart(self, workflow: str, /, *args: Any, **fields: Any) -> Handle:
        return await self._client.host.acall(self._start(workflow, args, fields))

    def submit(self, workflow: str, /, *args: Any, **fields: Any) -> Handle:
        return self._client.host.call(self._start(workflow, args, fields, pending=True))

    async def asubmit(self, workflow: str, /, *args: Any, **fields: Any) -> Handle:
        return await self._client.host.acall(self._start(workflow, args, fields, pending=True))

    async def _start(
        self, workflow: str, args: tuple[Any, ...], fields: Mapping[str, Any], *, pending: bool = False
    ) -> Handle:
        if not isinstance(workflow, str):
            raise UsageError(
                "a server starts deployed workflows, by name; a function of this program runs with App"
            )
        if len(args) > 1 or (fields and args and args[0] is not None):
            raise UsageError("give the input either as one value or as keywords, not both")
        payload = dict(fields) or (args[0] if args else None)
        calls = self._client.client
        create = calls.submit if pending else calls.start
        return Handle(self._client, await create(workflow, payload, self._options))


def _id(execution: str | Handle) -> str:
    return execution.id if isinstance(execution, Handle) else execution


async def _next(values: AsyncIterator[T]) -> tuple[T] | None:
    """The next one in a tuple: it may be anything, even nothing."""
    try:
        return (await anext(values),)
    except StopAsyncIteration:
        return None


async def _close(values: AsyncIterator[Any]) -> None:
    close = getattr(values, "aclose", None)
    if close is not None:
        await close()
