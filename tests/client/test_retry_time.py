"""Patience counts from a break: of a stream that was open for long, of a call that waited long for its turn."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import pytest

from dalsegno import Client
from dalsegno.client import starts, transport
from dalsegno.client.problems import ServerUnreachable
from tests.client.test_transport import EXECUTION

PATIENCE = 30.0
HEADERS = {"Content-Type": "text/event-stream"}
CHECKED = 'event: checked\ndata: {"open":3}\n\n'
EVENT = 'id: 1\nevent: NodeCompleted\ndata: {"seq":1,"kind":"NodeCompleted","at":"2030-01-31T09:00:00Z"}\n\n'
END = 'event: end\ndata: {"open":0}\n\n'
CUT = httpx.ReadError("the server was killed")
REFUSED = httpx.ConnectError("refused")

Part = str | float | Exception
"""Text that a stream sends, seconds in which it is quiet, and what breaks it."""


class Clock:
    """What `Retries` reads."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


class Stream(httpx.AsyncByteStream):
    def __init__(self, clock: Clock, parts: tuple[Part, ...]) -> None:
        self._clock = clock
        self._parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            if isinstance(part, str):
                yield part.encode()
            elif isinstance(part, float):
                self._clock.now += part
            else:
                raise part


class Wire(httpx.AsyncBaseTransport):
    """Each request gets the next one of these streams, or its error."""

    def __init__(self, clock: Clock, answers: tuple[tuple[Part, ...] | Exception, ...]) -> None:
        self._clock = clock
        self._answers: Iterator[tuple[Part, ...] | Exception] = iter(answers)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        del request
        answer = next(self._answers)
        if isinstance(answer, Exception):
            self._clock.now += PATIENCE / 4
            raise answer
        return httpx.Response(200, headers=HEADERS, stream=Stream(self._clock, answer))


Wired = Callable[..., Client]


@pytest.fixture
def wired(monkeypatch: pytest.MonkeyPatch) -> Wired:
    clock = Clock()
    monkeypatch.setattr(transport, "time", clock)
    monkeypatch.setattr(transport, "FIRST_PAUSE", 0.001)
    return lambda *answers: Client("http://there:1", patience=PATIENCE, wire=Wire(clock, answers))


def ended(*executions: str) -> str:
    replies = ({**EXECUTION, "id": each, "state": "COMPLETED", "output": each} for each in executions)
    return "".join(f"event: ended\ndata: {json.dumps(reply)}\n\n" for reply in replies)


async def results(client: Client) -> list[str | BaseException]:
    async with client:
        waits = [client.handle(each).aresult() for each in ("e1", "e2", "e3")]
        return await asyncio.gather(*waits, return_exceptions=True)


@pytest.mark.parametrize("quiet", [PATIENCE + 1, 2 * PATIENCE - 1])
async def test_waits_survive_a_break_late_in_a_stream(wired: Wired, quiet: float) -> None:
    client = wired((CHECKED, quiet, CUT), REFUSED, REFUSED, (ended("e1", "e2", "e3"), END))
    assert await results(client) == ["e1", "e2", "e3"]


async def test_waits_survive_a_server_that_is_away_when_their_stream_is_over(wired: Wired) -> None:
    client = wired((CHECKED, 2 * PATIENCE, END), REFUSED, (ended("e1", "e2", "e3"), END))
    assert await results(client) == ["e1", "e2", "e3"]


async def test_waits_survive_a_second_break_before_the_server_has_looked_at_all(wired: Wired) -> None:
    client = wired(
        (CHECKED, CUT),
        REFUSED,
        REFUSED,
        (ended("e1"), PATIENCE, CUT),
        REFUSED,
        REFUSED,
        (ended("e2", "e3"), END),
    )
    assert await results(client) == ["e1", "e2", "e3"]


async def test_waits_end_when_patience_is_over_after_the_break(wired: Wired) -> None:
    client = wired((CHECKED, 2 * PATIENCE, ended("e2"), CUT), *[REFUSED] * 10)
    assert [type(each) for each in await results(client)] == [ServerUnreachable, str, ServerUnreachable]


async def test_a_server_that_opens_streams_and_never_looks_is_given_up(wired: Wired) -> None:
    """As one does whose store is out of reach."""
    client = wired(*[(": open\n\n", PATIENCE / 3, CUT)] * 10)
    assert {type(each) for each in await results(client)} == {ServerUnreachable}


def test_events_are_followed_after_a_break_late_in_a_stream(wired: Wired) -> None:
    quiet = (": still here\n\n", PATIENCE / 2) * 4
    with wired((EVENT, *quiet, CUT), REFUSED, REFUSED, (EVENT, END)) as client:
        assert [each.seq for each in client.stream("e1")] == [1]


def test_a_stream_ends_when_patience_is_over_after_the_break(wired: Wired) -> None:
    client = wired((EVENT, 4 * PATIENCE, CUT), *[REFUSED] * 10)
    seen = []
    with client, pytest.raises(ServerUnreachable, match="refused"):
        seen += [each.seq for each in client.stream("e1")]


# -- many calls ------------------------------------------------------------------------------------------------


class BusyServer(httpx.AsyncBaseTransport):
    """Needs half of a client's patience for a request, and breaks the connections of those with these numbers."""

    def __init__(self, clock: Clock, *broken: int) -> None:
        self._clock = clock
        self._broken = broken
        self.starts: Counter[str] = Counter()
        self.requests = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        await asyncio.sleep(0)  # other calls begin
        self._clock.now += PATIENCE / 2
        if self.requests in self._broken:
            raise CUT
        if request.method == "GET":
            return httpx.Response(200, json=EXECUTION)
        keys = [each["idempotency_key"] for each in json.loads(request.content)["starts"]]
        self.starts.update(keys)
        return httpx.Response(200, json={"results": [{"id": key} for key in keys]})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (transport, starts):
        monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(transport, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(transport, "MOST_CALLS", 1)
    monkeypatch.setattr(starts, "MOST_REQUESTS", 1)
    monkeypatch.setattr(starts, "MOST_STARTS", 10)
    return made


async def test_starts_that_waited_long_for_their_turn_survive_a_break(clock: Clock) -> None:
    server = BusyServer(clock, 5)
    async with Client("http://there:1", patience=PATIENCE, wire=server) as client:
        handles = await asyncio.gather(*(client.astart("greet", name=str(n)) for n in range(100)))
    assert {handle.id for handle in handles} == set(server.starts)
    assert server.requests == 10 + 1


async def test_starts_in_the_queue_are_given_up_with_those_that_are_sent(clock: Clock) -> None:
    server = BusyServer(clock, *range(3, 100))
    async with Client("http://there:1", patience=PATIENCE, wire=server) as client:
        work = (client.astart("greet", name=str(n)) for n in range(100))
        found = await asyncio.gather(*work, return_exceptions=True)
    assert {type(each) for each in found if isinstance(each, BaseException)} == {ServerUnreachable}
    assert server.requests < 10


async def test_calls_that_waited_long_for_their_turn_survive_a_break(clock: Clock) -> None:
    server = BusyServer(clock, 5)
    async with Client("http://there:1", patience=PATIENCE, wire=server) as client:
        views = await asyncio.gather(*(client.handle("e1").astatus() for _ in range(10)))
    assert len(views) == 10
