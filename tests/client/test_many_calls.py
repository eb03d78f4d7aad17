"""Many calls of one client at once: few connections, few requests, and for each caller its own outcome."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from dalsegno import Client, NotFound
from dalsegno.client import transport
from dalsegno.errors import InvalidInput, KeyReused, UsageError
from tests.client.documents import GREET, WAITS
from tests.client.test_transport import EXECUTION
from tests.server.conftest import LiveServer
from tests.waiting import come_about

CALLS = 400


class Network(httpx.AsyncBaseTransport):
    """The network, and what went over it."""

    def __init__(self, missing: tuple[str, ...] = ()) -> None:
        """``missing``: paths that an older server does not have."""
        self._network = httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=None))
        self.missing = missing
        self.paths: Counter[str] = Counter()
        self.in_flight = self.most_in_flight = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.removeprefix("/v1/")
        self.paths[path] += 1
        if path in self.missing:
            request = httpx.Request(request.method, request.url.join("/v1/missing"), headers=request.headers)
            request.headers.pop("content-length", None)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._network.handle_async_request(request)
        finally:
            self.in_flight -= 1

    async def aclose(self) -> None:
        await self._network.aclose()


async def test_starts_go_together_and_each_caller_gets_its_own(client: Client, live: LiveServer) -> None:
    client.deploy(GREET)
    network = Network()
    async with Client(live.url, wire=network) as many:
        handles = await asyncio.gather(*(many.astart("greet", name=str(n)) for n in range(CALLS)))
        results = await asyncio.gather(*(handle.aresult(timeout=60) for handle in handles))

    assert results == [f"Hello, {n}!" for n in range(CALLS)]
    assert len({handle.id for handle in handles}) == CALLS
    assert network.paths["executions"] == 0
    assert network.paths["executions/batch"] <= 8
    assert network.most_in_flight <= transport.MOST_CALLS


async def test_one_wrong_start_is_refused_alone(client: Client, live: LiveServer) -> None:
    """What the server does not do, and what makes it refuse the whole request."""
    client.deploy(GREET)
    client.with_options(idempotency_key="used").start("greet", name="Ada")
    async with Client(live.url) as many:
        good = [many.astart("greet", name="Ann") for _ in range(20)]
        wrong = [
            many.astart("unknown"),
            many.with_options(idempotency_key="used").astart("greet", name="Bob"),
            many.with_options(tags={"line\nbreak": "x"}).astart("greet"),
            many.with_options(version="nothing").astart("greet"),
        ]
        outcomes = await asyncio.gather(*good, *wrong, return_exceptions=True)

    assert [type(each) for each in outcomes[20:]] == [NotFound, KeyReused, InvalidInput, NotFound]
    assert len({each.id for each in outcomes[:20] if not isinstance(each, BaseException)}) == 20


async def test_a_batch_whose_reply_is_lost_starts_nothing_twice(client: Client, live: LiveServer) -> None:
    client.deploy(GREET)

    class LosesFirstReply(Network):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            reply = await super().handle_async_request(request)
            if request.url.path.endswith("/batch") and self.paths["executions/batch"] == 1:
                await reply.aread()
                raise httpx.ReadError("the line broke", request=request)
            return reply

    network = LosesFirstReply()
    async with Client(live.url, wire=network) as many:
        handles = await asyncio.gather(*(many.astart("greet", name="Ada") for _ in range(50)))

    assert network.paths["executions/batch"] == 2
    assert {view.id for view in client.executions("greet")} == {handle.id for handle in handles}


async def test_waits_share_a_stream_and_leave_room_for_other_calls(client: Client, live: LiveServer) -> None:
    client.deploy(WAITS)
    network = Network()
    async with Client(live.url, wire=network) as many:
        handles = await asyncio.gather(*(many.astart("waits") for _ in range(CALLS)))
        waits = [asyncio.create_task(handle.aresult(timeout=60)) for handle in handles]
        await come_about(lambda: network.paths["executions/endings"], "a stream is open")
        began = time.monotonic()
        await handles[0].asignal("go", {"by": "Ann"})
        assert await waits[0] == "Ann"
        assert time.monotonic() - began < 30
        await asyncio.gather(*(handle.asignal("go", {"by": "Bob"}) for handle in handles[1:]))
        assert set(await asyncio.gather(*waits[1:])) == {"Bob"}

    assert network.paths["executions/endings"] < 20
    assert network.most_in_flight <= transport.MOST_CALLS + 2


async def test_waits_that_come_one_by_one_need_few_streams(client: Client, live: LiveServer) -> None:
    client.deploy(WAITS)
    async with Client(live.url) as many:
        handles = await asyncio.gather(*(many.astart("waits") for _ in range(60)))
        waits = []
        for handle in handles:
            waits.append(asyncio.create_task(handle.aresult(timeout=60)))
            await asyncio.sleep(0.01)
        assert len(many.client._waits._rounds) <= 2
        await asyncio.gather(*(handle.asignal("go", {"by": "Ann"}) for handle in handles))
        assert await asyncio.gather(*waits) == ["Ann"] * 60


async def test_what_does_not_end_or_exist_is_told_to_each_caller(client: Client, live: LiveServer) -> None:
    client.deploy(WAITS)
    async with Client(live.url) as many:
        run = await many.astart("waits")
        waits = [run.aresult(timeout=0.2), run.aresult(timeout=0), many.handle("0123").aresult(timeout=5)]
        outcomes = await asyncio.gather(*waits, return_exceptions=True)
    assert [type(each) for each in outcomes] == [TimeoutError, TimeoutError, NotFound]


async def test_an_older_server_is_asked_one_by_one(client: Client, live: LiveServer) -> None:
    client.deploy(GREET)
    network = Network(missing=("executions/batch", "executions/endings"))
    async with Client(live.url, wire=network) as many:
        handles = await asyncio.gather(*(many.astart("greet", name=str(n)) for n in range(100)))
        results = await asyncio.gather(*(handle.aresult(timeout=60) for handle in handles))
    assert results == [f"Hello, {n}!" for n in range(100)]
    assert network.paths["executions"] == 100


def threads() -> set[threading.Thread]:
    """Threads with an event loop of ours."""
    return {each for each in threading.enumerate() if each.name == "dalsegno"}


def test_threads_share_a_client(live: LiveServer, client: Client) -> None:
    client.deploy(GREET)
    before = threads()
    with Client(live.url) as many, ThreadPoolExecutor(40) as pool:
        ready = threading.Barrier(40)

        def call(n: int) -> Any:
            ready.wait()
            return many.start("greet", name=str(n)).result(timeout=60)

        assert list(pool.map(call, range(40))) == [f"Hello, {n}!" for n in range(40)]
        assert len(threads() - before) == 1


async def test_calls_that_wait_are_told_that_the_client_was_closed(client: Client, live: LiveServer) -> None:
    client.deploy(WAITS)
    many = Client(live.url)
    async with many:
        run = await many.astart("waits")
        waits = asyncio.create_task(run.aresult())
        await asyncio.sleep(0.2)
    with pytest.raises(UsageError, match="was closed"):
        await waits


# -- connections ----------------------------------------------------------------------------------------------


class Mute:
    """Takes connections and says nothing until it is told to."""

    def __init__(self) -> None:
        self.speaks = False
        self.open = 0
        self.url = ""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Mute]:
        listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        async with listener:
            yield self
            listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        body = json.dumps(EXECUTION).encode()
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                if self.speaks:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()


async def test_connections_of_calls_that_were_given_up_are_free_again() -> None:
    """Also of those that were given up while they got their connection."""
    async with Mute().listening() as server, Client(server.url, patience=5) as client:
        for pause in (0.0, 0.0, 0.05, 0.2):
            calls = [asyncio.create_task(client.handle(f"e{n}").astatus()) for n in range(300)]
            await asyncio.sleep(pause)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
        await come_about(lambda: server.open == 0, "all connections are closed")
        server.speaks = True
        async with asyncio.timeout(60):
            views = await asyncio.gather(*(client.handle("e1").astatus() for _ in range(500)))
        assert len(views) == 500
        assert server.open <= transport.MOST_CALLS


async def test_calls_that_wait_for_a_connection_are_told_of_a_silent_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "READ", 0.5)
    async with Mute().listening() as server, Client(server.url, patience=0.5) as client:
        began = time.monotonic()
        calls = [client.handle(f"e{n}").astatus() for n in range(500)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each).__name__ for each in outcomes} == {"ServerUnreachable"}
    assert time.monotonic() - began < 60
