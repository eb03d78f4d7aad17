"""Requests to one server: authentication, errors, timeouts and retries.

Connections form a bounded pool, each with one request at a time, assigned in order of arrival. The pool of httpx scans
all its connections and all waiting requests whenever either changes, and a request that is cancelled while it gets its
connection leaks that connection. Therefore each connection here is an httpx client of its own, requests wait for one
in a queue, and a connection whose request did not end normally is closed.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cached_property
from typing import Any, TypeVar
from uuid import uuid4

import httpx
import msgspec

from dalsegno.client.problems import NotThisServer, RouteMissing, ServerUnreachable, error_of, read_problem
from dalsegno.core.values import encode_value
from dalsegno.errors import BadConfiguration, DalSegnoError, TooManyRequests, Unavailable
from dalsegno.version import __version__


class Connections:
    """The pool: first come, first served. It runs on one event loop."""

    def __init__(
        self, make: Callable[[], httpx.AsyncClient], most: int, silence: float, *, are_shared: bool = False
    ) -> None:
        """``make``: creates a connection. ``silence``: seconds without an answer of the server after which a
        request that waits for a connection fails. ``are_shared``: ``make`` always returns the same client, which
        is not closed here."""
        self._make = make
        self._left = most
        self._silence = silence
        self._are_shared = are_shared
        self._idle: list[httpx.AsyncClient] = []
        self._queue: deque[asyncio.Future[None]] = deque()
        self._closing: set[asyncio.Task[None]] = set()
        self._answered_at = time.monotonic()

    @property
    def waiting(self) -> int:
        """Number of requests that wait for a connection, including abandoned ones."""
        return len(self._queue)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[httpx.AsyncClient]:
        """Lend a connection for one request. Raises httpx.PoolTimeout if all are in use and the server answers
        nothing."""
        await self._enter()
        http: httpx.AsyncClient | None = None
        try:
            http = self._idle.pop() if self._idle else self._make()
            yield http
            self._answered_at = time.monotonic()
            self._idle.append(http)
        except BaseException:
            if http is not None:
                self._discard(http)
            raise
        finally:
            self._leave()

    async def close(self) -> None:
        """Close the pool. Connections in use are closed by their users."""
        idle, self._idle = self._idle, []
        for http in idle:
            self._discard(http)
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _enter(self) -> None:
        if self._left > 0:
            self._left -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await self._wait_for(turn)
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._leave()
            turn.cancel()
            raise

    async def _wait_for(self, turn: asyncio.Future[None]) -> None:
        began = time.monotonic()
        while not turn.done():
            await asyncio.wait((turn,), timeout=self._silence)
            silent = time.monotonic() - max(self._answered_at, began)
            if not turn.done() and silent >= self._silence:
                raise httpx.PoolTimeout(f"it has not answered any request for {silent:.0f} s")

    def _leave(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._left += 1

    def _discard(self, http: httpx.AsyncClient) -> None:
        """Close a connection in a task of its own, because its user may have been cancelled."""
        if self._are_shared:
            return
        closing = asyncio.get_running_loop().create_task(http.aclose())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


T = TypeVar("T")
Query = Mapping[str, str | int | float | bool | Sequence[str] | None]

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
LONGEST_PROBE_PAUSE = 0.5
"""Seconds between attempts of the one call that checks whether the server is back; the others wait for its result."""
CONNECT = 5.0
READ = 60.0
MOST_CALLS = 32
"""Requests in flight; further ones wait."""
MOST_POLLS = 64
"""The same for long polls, for servers that cannot wait for many executions in one request."""
SHORT_POLL = 2.0
"""Seconds of a long poll while other calls wait for a connection."""
MOST_STREAMS = 1_000_000
"""Streams hold a connection each for any time: only the server limits them."""
UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Errors after which nothing of the request has reached the server."""
MISSING = (httpx.codes.NOT_FOUND, httpx.codes.METHOD_NOT_ALLOWED)
"""Statuses with which an older server answers an unknown path, or one it takes for that of an execution."""


class Transport:
    """The connections to a server and the requests on them, on one event loop."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        patience: float = 30.0,
        restart_patience: float = 0.0,
        wire: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """``patience``: seconds for which requests are retried while the server is unreachable;
        ``restart_patience``: the same, if longer, once the server has answered."""
        self.url = checked_url(url)
        self.patience = patience
        self.restart_patience = restart_patience
        self.reachability = Reach()
        self._headers = {"User-Agent": f"dalsegno/{__version__}", "Accept": "application/json"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._wire = wire
        self._calls = self._connections(MOST_CALLS)
        self._polls = self._connections(MOST_POLLS)
        self._streams = self._connections(MOST_STREAMS)
        self._background: set[asyncio.Task[None]] = set()
        self._closers: list[Callable[[], None]] = []

    def _connections(self, most: int) -> Connections:
        if self._wire is not None:
            return Connections(lambda: self._shared, most, READ, are_shared=True)
        return Connections(self._make_client, most, READ)

    @cached_property
    def _shared(self) -> httpx.AsyncClient:
        """The only client over a wire that the user passed."""
        return self._make_client()

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """The TLS context, created once: loading its certificates takes longer than a request."""
        return httpx.create_ssl_context()

    def _make_client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            base_url=f"{self.url}/v1/",
            headers=self._headers,
            timeout=httpx.Timeout(READ, connect=CONNECT),
            limits=httpx.Limits(max_connections=None if self._wire is not None else 1),
            transport=self._wire,
            verify=self._tls if self._wire is None and self.url.startswith("https:") else False,
        )

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a task in the background until it ends or the transport is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    def on_close(self, call: Callable[[], None]) -> None:
        """Register a function to call before connections are closed."""
        self._closers.append(call)

    async def close(self) -> None:
        for call in self._closers:
            call()
        background = list(self._background)
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        for each in (self._calls, self._polls, self._streams):
            await each.close()
        if "_shared" in self.__dict__:
            await self._shared.aclose()

    # -- requests ---------------------------------------------------------------------------------------------

    async def get(self, path: str, kind: type[T], query: Query | None = None) -> T:
        return self.read(await self._ask("GET", path, query, None, repeatable=True), kind)

    async def poll(self, path: str, kind: type[T], seconds: float, slack: float) -> T:
        """Send a long poll of ``seconds``; the answer may take ``slack`` longer. While others wait for a
        connection, the poll is short."""
        asked = min(seconds, SHORT_POLL) if self._polls.waiting else seconds
        query = {"seconds": round(asked, 3)}
        connections = self._polls
        response = await self._ask(
            "GET", path, query, None, repeatable=True, read=asked + slack, connections=connections
        )
        return self.read(response, kind)

    async def send(
        self,
        method: str,
        path: str,
        kind: type[T],
        body: Any = None,
        *,
        query: Query | None = None,
        repeatable: bool = False,
        key: str | None = None,
        when_lost: Callable[[], None] | None = None,
        slack: float | None = None,
    ) -> T:
        """Send a request. ``repeatable``: it is idempotent and may be repeated when no answer came. A ``key`` makes
        it so. ``slack``: seconds that the answer to a long poll may take.
        ``when_lost`` is called when no answer came to a request that may have reached the server."""
        content = encode_value(body, "the request") if body is not None else None
        again = repeatable or key is not None
        response = await self._ask(
            method,
            path,
            query,
            content,
            repeatable=again,
            key=key,
            when_lost=when_lost,
            read=slack,
            connections=self._polls if slack is not None else None,
        )
        return self.read(response, kind)

    async def put(self, path: str, kind: type[T], body: Any) -> tuple[T, bool]:
        """Create or change the resource at the path; return it and whether it is new."""
        content = encode_value(body, "the request")
        response = await self._ask("PUT", path, None, content, repeatable=True)
        return self.read(response, kind), response.status_code == httpx.codes.CREATED

    @asynccontextmanager
    async def open_stream(
        self, path: str, headers: Mapping[str, str] | None = None, content: bytes | None = None
    ) -> AsyncIterator[httpx.Response]:
        """Open a streamed response, without retries. Read it to its end so that its connection is reused. Raises
        RouteMissing if a server does not support ``content``."""
        timeout = httpx.Timeout(READ, connect=CONNECT)
        given = {"Accept": "text/event-stream", "Accept-Encoding": "identity", **(headers or {})}
        method = "GET" if content is None else "POST"
        if content is not None:
            given["Content-Type"] = "application/json"
        async with self._streams.one() as http:
            stream = http.stream(method, path, headers=given, content=content, timeout=timeout)
            async with stream as response:
                if response.is_error:
                    await response.aread()
                    if content is not None:
                        _check_route(response)
                    self._check(response)
                self.reachability.answered()
                yield response

    async def attempt(self, path: str, content: bytes, *, may_be_missing: bool = False) -> httpx.Response:
        """Post once. Raises httpx.TransportError, the server's error, or RouteMissing if an older server may lack
        the path."""
        async with self._calls.one() as http:
            response = await http.post(path, content=content, headers={"Content-Type": "application/json"})
        if may_be_missing:
            _check_route(response)
        self._check(response)
        return response

    async def _ask(
        self,
        method: str,
        path: str,
        query: Query | None,
        content: bytes | None,
        *,
        repeatable: bool,
        key: str | None = None,
        read: float | None = None,
        connections: Connections | None = None,
        when_lost: Callable[[], None] | None = None,
    ) -> httpx.Response:
        """``read``: seconds that an answer may take."""
        retries = self.retries()
        headers = {"Content-Type": "application/json"} if content is not None else {}
        if key is not None:
            headers["Idempotency-Key"] = key
        given = {name: each for name, each in (query or {}).items() if each is not None}
        timeout = httpx.Timeout(READ if read is None else read, connect=CONNECT)
        is_sent = False
        while True:
            try:
                async with (connections or self._calls).one() as http:
                    if not is_sent:
                        is_sent = True
                        retries.begin()
                    response = await http.request(
                        method, path, params=given, content=content, headers=headers, timeout=timeout
                    )
                self._check(response)
            except httpx.TransportError as error:
                if not repeatable and not isinstance(error, UNSENT):
                    raise retries.unreachable(error) from error
                if when_lost is not None and not isinstance(error, UNSENT):
                    when_lost()
                await retries.pause(error)
            except (Unavailable, TooManyRequests) as error:
                if not repeatable:
                    raise
                if when_lost is not None and isinstance(error, Unavailable):
                    when_lost()
                await retries.pause(error)
            else:
                return response

    def retries(self) -> Retries:
        return Retries(self.url, self.patience, self.reachability)

    # -- answers ----------------------------------------------------------------------------------------------

    def _check(self, response: httpx.Response) -> None:
        if not response.is_error:
            self.reachability.answered()
            self.patience = max(self.patience, self.restart_patience)
            return
        problem = read_problem(response.content)
        if problem is not None:
            raise error_of(problem, _seconds(response.headers.get("retry-after")))
        if response.status_code in (502, 503, 504):
            raise ServerUnreachable(
                f"the proxy before the server at {self.url} answered {response.status_code}"
            )
        raise NotThisServer(self._unexpected_reply(response, f"it answered {response.status_code}"))

    def read(self, response: httpx.Response, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(response.content or b"null", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NotThisServer(
                self._unexpected_reply(response, f"its answer does not fit ({error})")
            ) from None

    def _unexpected_reply(self, response: httpx.Response, what: str) -> str:
        asked = f"{response.request.method} {response.request.url.path}"
        name, _, version = response.headers.get("server", "").partition("/")
        if name != "dalsegno":
            return f"the program at {self.url} is not a Dal Segno server: {what} to {asked}"
        return f"the server at {self.url} is version {version}, this client {__version__}: {what} to {asked}"


def own_key() -> str:
    """Return a new idempotency key for a call whose caller gave none; all attempts share it."""
    return f"client-{uuid4().hex}"


class Reach:
    """Reachability of the server for calls that found none. One of them retries soon; the others wait until it was
    answered or their own pauses are over."""

    def __init__(self) -> None:
        self._answered = asyncio.Event()
        self._is_probed = False

    def answered(self) -> None:
        """The server has answered: wake the waiting calls."""
        self._answered.set()
        self._answered = asyncio.Event()

    async def pause(self, seconds: float) -> None:
        if not self._is_probed:
            self._is_probed = True
            try:
                await asyncio.sleep(min(seconds, LONGEST_PROBE_PAUSE))
            finally:
                self._is_probed = False
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._answered.wait()


class Retries:
    """The retry policy of a call or stream: a call is given up `patience` seconds after it was first sent, a stream
    so many seconds after it broke."""

    def __init__(self, url: str, patience: float, reachability: Reach) -> None:
        self.url = url
        self.patience = patience
        self._reachability = reachability
        self._pause = FIRST_PAUSE
        self._until: float | None = time.monotonic() + patience

    def begin(self) -> None:
        """Start the clock at the first attempt: the wait for a connection does not count."""
        self._until = time.monotonic() + self.patience

    def progress(self) -> None:
        """The server has answered: the clock starts again with the next failure."""
        self._pause = FIRST_PAUSE
        self._until = None

    def next_pause(self, error: Exception) -> float:
        """Return the seconds to wait; raises the error if the time is over."""
        wanted = error.after if isinstance(error, TooManyRequests) else 0.0
        pause = max(self._pause * random.uniform(0.5, 1.0), wanted)  # noqa: S311 - spreads load, guards nothing
        now = time.monotonic()
        if self._until is None:
            self._until = now + self.patience
        if now + pause > self._until:
            raise (error if isinstance(error, DalSegnoError) else self.unreachable(error)) from None
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        return pause

    def is_over(self, now: float) -> bool:
        return self._until is not None and now > self._until

    async def pause(self, error: Exception) -> None:
        """Wait before the next attempt; raises the error if the time is over."""
        await self.pause_for(self.next_pause(error), error)

    async def pause_for(self, seconds: float, error: Exception) -> None:
        """Wait at most ``seconds``; if the server was unreachable, only until it is back."""
        if isinstance(error, httpx.TransportError | ServerUnreachable):
            await self._reachability.pause(seconds)
        else:
            await asyncio.sleep(seconds)

    def unreachable(self, error: Exception) -> ServerUnreachable:
        reason = str(error) or type(error).__name__
        return ServerUnreachable(f"the server at {self.url} cannot be reached: {reason}")


def _check_route(response: httpx.Response) -> None:
    if response.status_code in MISSING:
        raise RouteMissing(f"there is no {response.request.method} {response.request.url.path}")


def checked_url(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise BadConfiguration(f"{url!r} is not the URL of a server: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise BadConfiguration(f"{url!r} is not the URL of a server; write it like http://127.0.0.1:8700")
    if parsed.userinfo:
        raise BadConfiguration("a server's URL must not contain a key; give it as 'key', or as DALSEGNO_KEY")
    return url.rstrip("/").removesuffix("/v1")


def _seconds(header: str | None) -> float | None:
    try:
        return float(header) if header is not None else None
    except ValueError:
        return None
