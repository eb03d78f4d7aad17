"""Requests to one server: who asks, what an error means, and when it is worth asking again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from uuid import uuid4

import httpx
import msgspec

from dalsegno.client.problems import NotThisServer, ServerUnreachable, error_of, read_problem
from dalsegno.core.values import encode_value
from dalsegno.errors import BadConfiguration, DalSegnoError, TooManyRequests, Unavailable
from dalsegno.version import __version__

T = TypeVar("T")
Query = Mapping[str, str | int | float | bool | Sequence[str] | None]

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
CONNECT = 5.0
READ = 60.0
UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""Nothing of the request has reached the server."""


class Transport:
    """Keeps connections open. Everything it does happens on one loop."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        patience: float = 30.0,
        loyalty: float = 0.0,
        wire: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """``patience``: for so many seconds it tries again while the server is out of reach; ``loyalty``: the same, if
        longer, once the server has answered."""
        self.url = _checked(url)
        self.patience = patience
        self.loyalty = loyalty
        headers = {"User-Agent": f"dalsegno/{__version__}", "Accept": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._http = httpx.AsyncClient(
            base_url=f"{self.url}/v1/",
            headers=headers,
            timeout=httpx.Timeout(READ, connect=CONNECT),
            limits=httpx.Limits(max_connections=200, max_keepalive_connections=20),
            transport=wire,
        )

    async def close(self) -> None:
        await self._http.aclose()

    # -- asking -----------------------------------------------------------------------------------------------

    async def get(self, path: str, kind: type[T], query: Query | None = None, read: float = READ) -> T:
        """``read``: seconds that an answer may take."""
        return self._read(await self._ask("GET", path, query, None, read, repeatable=True), kind)

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
    ) -> T:
        """``repeatable``: doing it twice is doing it once, so that it may be sent again when no answer came. A ``key``
        makes it so."""
        content = encode_value(body, "the request") if body is not None else None
        again = repeatable or key is not None
        return self._read(
            await self._ask(method, path, query, content, READ, repeatable=again, key=key), kind
        )

    async def put(self, path: str, kind: type[T], body: Any) -> tuple[T, bool]:
        """Creates or changes a thing that the path names; whether it is new."""
        content = encode_value(body, "the request")
        response = await self._ask("PUT", path, None, content, READ, repeatable=True)
        return self._read(response, kind), response.status_code == httpx.codes.CREATED

    @asynccontextmanager
    async def open_stream(self, path: str, headers: Mapping[str, str]) -> AsyncIterator[httpx.Response]:
        """One answer that goes on; nothing is tried again here."""
        timeout = httpx.Timeout(READ, connect=CONNECT)
        given = {"Accept": "text/event-stream", "Accept-Encoding": "identity", **headers}
        async with self._http.stream("GET", path, headers=given, timeout=timeout) as response:
            if response.is_error:
                await response.aread()
                self._check(response)
            yield response

    async def _ask(
        self,
        method: str,
        path: str,
        query: Query | None,
        content: bytes | None,
        read: float,
        *,
        repeatable: bool,
        key: str | None = None,
    ) -> httpx.Response:
        retries = Retries(self.url, self.patience)
        headers = {"Content-Type": "application/json"} if content is not None else {}
        if key is not None:
            headers["Idempotency-Key"] = key
        given = {name: each for name, each in (query or {}).items() if each is not None}
        while True:
            try:
                response = await self._http.request(
                    method,
                    path,
                    params=given,
                    content=content,
                    headers=headers,
                    timeout=httpx.Timeout(read, connect=CONNECT),
                )
                self._check(response)
            except httpx.TransportError as error:
                if not repeatable and not isinstance(error, UNSENT):
                    raise retries.gone(error) from error
                await retries.pause(error)
            except (Unavailable, TooManyRequests) as error:
                if not repeatable:
                    raise
                await retries.pause(error)
            else:
                return response

    # -- answers ----------------------------------------------------------------------------------------------

    def _check(self, response: httpx.Response) -> None:
        if not response.is_error:
            self.patience = max(self.patience, self.loyalty)
            return
        problem = read_problem(response.content)
        if problem is not None:
            raise error_of(problem, _seconds(response.headers.get("retry-after")))
        if response.status_code in (502, 503, 504):
            raise ServerUnreachable(
                f"what stands before the server at {self.url} says {response.status_code}"
            )
        raise NotThisServer(self._strange(response, f"it answered {response.status_code}"))

    def _read(self, response: httpx.Response, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(response.content or b"null", type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise NotThisServer(self._strange(response, f"its answer does not fit ({error})")) from None

    def _strange(self, response: httpx.Response, what: str) -> str:
        asked = f"{response.request.method} {response.request.url.path}"
        name, _, version = response.headers.get("server", "").partition("/")
        if name != "dalsegno":
            return f"what answers at {self.url} is no Dal Segno server: {what} to {asked}"
        return f"the server at {self.url} is version {version}, this client {__version__}: {what} to {asked}"


def own_key() -> str:
    """For a call whose caller gave none: the same for every attempt of it."""
    return f"client-{uuid4().hex}"


class Retries:
    """When to try again, and when to give up."""

    def __init__(self, url: str, patience: float) -> None:
        self.url = url
        self.patience = patience
        self._pause = FIRST_PAUSE
        self._until = time.monotonic() + patience

    def progress(self) -> None:
        """Something came: patience begins anew."""
        self._pause = FIRST_PAUSE
        self._until = time.monotonic() + self.patience

    async def pause(self, error: Exception) -> None:
        """Raises where patience is over."""
        wanted = error.after if isinstance(error, TooManyRequests) else 0.0
        pause = max(self._pause * random.uniform(0.5, 1.0), wanted)  # noqa: S311 - spreads load, guards nothing
        if time.monotonic() + pause > self._until:
            raise (error if isinstance(error, DalSegnoError) else self.gone(error)) from None
        await asyncio.sleep(pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def gone(self, error: Exception) -> ServerUnreachable:
        said = str(error) or type(error).__name__
        return ServerUnreachable(f"the server at {self.url} cannot be reached: {said}")


def _checked(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise BadConfiguration(f"{url!r} is no URL of a server: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise BadConfiguration(f"{url!r} is no URL of a server; write it like http://127.0.0.1:8700")
    if parsed.userinfo:
        raise BadConfiguration("a server's URL must not hold a key; give it as 'key', or as DALSEGNO_KEY")
    return url.rstrip("/").removesuffix("/v1")


def _seconds(header: str | None) -> float | None:
    try:
        return float(header) if header is not None else None
    except ValueError:
        return None
