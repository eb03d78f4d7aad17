"""Events as they happen: all of them, once, in order, whatever breaks on the way."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator

import httpx
import pytest

from dalsegno import Client, NotFound
from dalsegno.client.problems import NotThisServer, ServerUnreachable
from dalsegno.client.waits import messages
from tests.client.documents import GREET, WAITS


def sse(*parts: str) -> httpx.Response:
    return httpx.Response(200, text="".join(parts), headers={"Content-Type": "text/event-stream"})


def event(seq: int, kind: str = "NodeCompleted") -> str:
    return f'id: {seq}\nevent: {kind}\ndata: {{"seq":{seq},"kind":"{kind}","at":"2030-01-31T09:00:00Z"}}\n\n'


END = 'event: end\ndata: {"state":"COMPLETED","last":3}\n\n'


def wired(*answers: httpx.Response | Exception) -> tuple[Client, list[str]]:
    asked: list[str] = []
    left = iter(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["last-event-id"])
        given = next(left)
        if isinstance(given, Exception):
            raise given
        return given

    return Client("http://there:1", patience=5, wire=httpx.MockTransport(answer)), asked


def test_a_live_execution_is_followed_to_its_end(client: Client) -> None:
    client.deploy(WAITS)
    run = client.start("waits")
    timer = threading.Timer(0.3, run.signal, ("go", {"by": "Ann"}))
    timer.start()
    kinds = [each.kind for each in client.stream(run)]
    timer.join()
    assert kinds[0] == "ExecutionStarted"
    assert kinds[-1] == "ExecutionCompleted"
    assert [each.seq for each in client.stream(run.id)] == list(range(1, len(kinds) + 1))
    assert [each.seq for each in client.stream(run.id, after=2)] == list(range(3, len(kinds) + 1))


async def test_async_and_left_in_the_middle(client: Client) -> None:
    await client.adeploy(GREET)
    run = await client.astart("greet", name="Ada")
    await run.aresult(timeout=10)
    async for each in client.astream(run):
        assert each.kind == "ExecutionStarted"
        break
    later = [each.seq async for each in client.astream(run, after=1)]
    assert later == list(range(2, len(later) + 2))


def test_an_execution_that_does_not_exist(client: Client) -> None:
    with pytest.raises(NotFound):
        list(client.stream("0123"))


def test_a_broken_stream_goes_on_where_it_broke() -> None:
    client, asked = wired(
        sse("retry: 1000\n\n", event(1), ": still here\n\n", event(2), "id: 3\nevent: cut o"),
        httpx.ConnectError("refused"),
        sse(event(2), event(3), END),
    )
    with client:
        assert [each.seq for each in client.stream("e1")] == [1, 2, 3]
    assert asked == ["0", "2", "2"]


def test_a_stream_that_cannot_be_had_ends_with_patience() -> None:
    client, asked = wired(*(httpx.ConnectError("refused") for _ in range(50)))
    client._patience = 0.3
    with client, pytest.raises(ServerUnreachable, match="refused"):
        list(client.stream("e1"))
    assert len(asked) > 1


def test_events_that_nobody_understands_are_an_error() -> None:
    client, _ = wired(sse("id: 1\nevent: x\ndata: {}\n\n"))
    with client, pytest.raises(NotThisServer, match="does not understand"):
        list(client.stream("e1"))


async def test_a_message_may_have_several_lines_of_data() -> None:
    async def lines() -> AsyncIterator[str]:
        for line in (": comment", "", "data: a", "data:b", "id: 7", "", "event: end", "", "data: cut off"):
            yield line

    found = [(each.kind, each.data, each.id) async for each in messages(lines())]
    assert found == [("message", ["a", "b"], "7"), ("end", [], "")]
