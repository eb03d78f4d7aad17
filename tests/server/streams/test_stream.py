"""Live events: each once, in order, from any number on; whoever watches, however slowly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from dalsegno.admin.keys import NO_QUOTAS
from dalsegno.app import App
from dalsegno.engine.settings import EngineSettings
from dalsegno.errors import Unavailable
from dalsegno.model.event import Event
from dalsegno.ports.archive import Archive
from dalsegno.server import ServerSettings
from dalsegno.server.application import Roles
from dalsegno.server.auth.authentication import OPEN
from dalsegno.server.auth.quotas import KeyUsage
from dalsegno.server.streams import execution_feed, state_changes
from dalsegno.server.streams.execution_feed import OPENING, Broadcast, Frame
from dalsegno.server.streams.stream import EventStream, execution_stream
from tests.server.conftest import LASTING, LiveServer
from tests.server.streaming import Watcher, read_stream
from tests.server.test_definitions import GRAPH
from tests.server.test_executions import WAITS, deploy_script, ended
from tests.waiting import come_about

PATIENT = httpx.Timeout(20)


async def start_waiting(http: httpx.AsyncClient) -> str:
    await deploy_script(http, WAITS)
    return str((await http.post("/v1/executions", json={"workflow": "waits"})).json()["id"])


async def test_the_stream_of_an_ended_execution_is_its_history(http: httpx.AsyncClient) -> None:
    execution = (await http.post("/v1/executions", json={"definition": GRAPH, "input": {"n": 1}})).json()[
        "id"
    ]
    await ended(http, execution)
    history = (await http.get(f"/v1/executions/{execution}/events")).json()["events"]

    answer = await http.get(f"/v1/executions/{execution}/stream")

    sent = [event async for event in read_stream(answer)]
    assert [event.data for event in sent[:-1]] == [
        {name: value for name, value in event.items() if value is not None} for event in history
    ]
    assert [event.kind for event in sent[:-1]] == [event["kind"] for event in history]
    assert (sent[-1].kind, sent[-1].data) == ("end", {"state": "COMPLETED", "last": len(history)})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert (answer.headers["x-accel-buffering"], answer.headers["cache-control"]) == ("no", "no-store")


async def test_a_stream_goes_on_after_any_number(http: httpx.AsyncClient) -> None:
    execution = (await http.post("/v1/executions", json={"definition": GRAPH, "input": {"n": 1}})).json()[
        "id"
    ]
    last = (await ended(http, execution))["events"]
    path = f"/v1/executions/{execution}/stream"

    for seen in range(last + 1):
        by_header = await http.get(path, headers={"Last-Event-ID": str(seen)}, params={"after": 1})
        by_parameter = await http.get(path, params={"after": seen})
        for answer in (by_header, by_parameter):
            sent = [event async for event in read_stream(answer)]
            assert [event.id for event in sent] == [*range(seen + 1, last + 1), None]


async def test_what_cannot_be_streamed_is_told(http: httpx.AsyncClient) -> None:
    execution = await start_waiting(http)
    path = f"/v1/executions/{execution}/stream"

    unknown = await http.get("/v1/executions/nowhere/stream")
    future = await http.get(path, params={"after": 999})
    wrong = await http.get(path, headers={"Last-Event-ID": "seven"})

    assert (unknown.status_code, unknown.json()["code"]) == (404, "DS-130")
    assert (future.status_code, future.json()["code"]) == (422, "DS-120")
    assert "there is no event 999" in future.json()["detail"]
    assert wrong.status_code == 422


async def test_a_cancelled_execution_is_told_to_the_last_node(http: httpx.AsyncClient) -> None:
    """The sweep adds what became of its nodes after the ending; the end comes after that."""
    document = {
        "name": "sleeps",
        "nodes": [{"id": "nap", "type": "wait", "parameters": {"amount": 1, "unit": "hours"}}],
    }
    execution = (await http.post("/v1/executions", json={"definition": document})).json()["id"]
    for _ in range(500):
        if (await http.get(f"/v1/executions/{execution}/why")).json()["reasons"]:
            break
        await asyncio.sleep(0.01)
    await http.post(f"/v1/executions/{execution}/cancel")

    sent = [event async for event in read_stream(await http.get(f"/v1/executions/{execution}/stream"))]

    assert [event.kind for event in sent[-3:]] == ["ExecutionCancelled", "NodeCancelled", "end"]
    assert sent[-1].data["state"] == "CANCELLED"


# -- live -----------------------------------------------------------------------------------------------------


async def test_events_come_when_they_happen(live: LiveServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits of the same process are not polled for."""
    monkeypatch.setattr(execution_feed, "LOOK_EVERY", 3600.0)
    async with httpx.AsyncClient(base_url=live.url, timeout=PATIENT) as http:
        execution = await start_waiting(http)
        watchers = [Watcher(live.url, execution) for _ in range(5)]
        following = [asyncio.create_task(watcher.follow(http)) for watcher in watchers]
        await come_about(lambda: all("Suspended" in watcher.kinds for watcher in watchers), "all hear of it")
        await http.post(f"/v1/executions/{execution}/signals", json={"name": "go", "payload": 1})
        await asyncio.wait_for(asyncio.gather(*following), 60)

        last = (await http.get(f"/v1/executions/{execution}")).json()["events"]
    for watcher in watchers:
        assert watcher.seen == list(range(1, last + 1))
        assert watcher.end == {"state": "COMPLETED", "last": last}


async def test_more_streams_than_allowed_are_refused_and_seats_come_back(app: App) -> None:
    with LiveServer(app, ServerSettings(streams=3, names=("*",))) as live:
        async with httpx.AsyncClient(base_url=live.url, timeout=PATIENT) as http:
            execution = await start_waiting(http)
            path = f"/v1/executions/{execution}/stream"
            opened = [http.stream("GET", path) for _ in range(2)] + [http.stream("GET", "/v1/stream")]
            for stream in opened:
                assert (await stream.__aenter__()).status_code == 200
            refused = await http.get(path)
            assert (refused.status_code, refused.json()["code"]) == (503, "DS-210")
            assert "3 event streams and waiting calls are open" in refused.json()["detail"]
            assert refused.headers["retry-after"] == "1"
            await opened[0].__aexit__(None, None, None)
            for _ in range(500):
                async with http.stream("GET", path) as again:
                    if again.status_code == 200:
                        break
                await asyncio.sleep(0.01)
            assert again.status_code == 200
            for stream in opened[1:]:
                await stream.__aexit__(None, None, None)


async def test_state_changes_of_all_executions(live: LiveServer) -> None:
    async with httpx.AsyncClient(base_url=live.url, timeout=PATIENT) as http:
        await deploy_script(http, WAITS)
        seen: list[tuple[str, str, str]] = []
        async with http.stream("GET", "/v1/stream", params={"workflow": "waits"}) as answer:
            events = read_stream(answer)
            await http.post("/v1/executions", json={"definition": GRAPH, "input": {"n": 1}})
            execution = (await http.post("/v1/executions", json={"workflow": "waits"})).json()["id"]
            for verb in ("pause", "resume", "cancel"):
                await http.post(f"/v1/executions/{execution}/{verb}")
            async for event in events:
                seen.append((event.kind, event.data["workflow"], event.data["state"]))
                if event.kind == "ExecutionCancelled":
                    break
    assert seen == [
        ("ExecutionStarted", "waits", "RUNNING"),
        ("ExecutionPaused", "waits", "PAUSED"),
        ("ExecutionResumed", "waits", "RUNNING"),
        ("ExecutionCancelled", "waits", "CANCELLED"),
    ]


@LASTING
async def test_another_process_is_noticed(store_url: str) -> None:
    """A server without a worker of its own shows what others do, in the stream of one and in the stream of all."""
    elsewhere = App(store_url)
    with LiveServer(App(store_url, settings=EngineSettings(reconcile_every=0.5))) as live:
        async with (
            httpx.AsyncClient(base_url=live.url, timeout=PATIENT) as http,
            elsewhere.running(worker=False, scheduler=False),
        ):
            execution = await start_waiting(http)
            watcher = Watcher(live.url, execution)
            async with http.stream("GET", "/v1/stream") as answer:
                events = read_stream(answer)
                following = asyncio.create_task(watcher.follow(http))
                await elsewhere.client.cancel(execution)
                await elsewhere.client.cancel(execution)
                async for event in events:
                    if event.kind == "ExecutionCancelled":
                        assert event.data["execution"] == execution
                        break
            await asyncio.wait_for(following, 60)
    assert watcher.end == {"state": "CANCELLED", "last": watcher.seen[-1]}
    assert watcher.seen == list(range(1, len(watcher.seen) + 1))


# -- the reader behind it -------------------------------------------------------------------------------------


def numbers(batch: Sequence[Frame]) -> list[int]:
    return [frame.seq for frame in batch]


async def test_a_slow_watcher_loses_nothing_and_holds_up_nobody(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution_feed, "RECENT", 4)
    monkeypatch.setattr(execution_feed, "PAGE", 3)
    async with app.running():
        client = app.client
        await app.adeploy_script(WAITS)
        execution = await client.start("waits")
        hub = Broadcast(client.stack.archive, asyncio.Event())
        app.engine.observe(hub)
        view = await client.status(execution)
        slow, fast = hub.watch(view, 0, 5.0), hub.watch(view, 0, 5.0)
        got_slow, got_fast = numbers(await anext(slow)), numbers(await anext(fast))
        for number in range(30):
            await client.signal(execution, "other", number)
            last = (await client.status(execution)).seq
            while not got_fast or got_fast[-1] < last:
                got_fast += numbers(await anext(fast))
        await client.signal(execution, "go")
        for got, watch in ((got_fast, fast), (got_slow, slow)):
            async for batch in watch:
                got += numbers(batch)
        last = (await client.status(execution)).seq
    assert got_fast == got_slow == list(range(1, last + 1))
    assert last > 30


async def test_all_watchers_of_an_execution_share_one_reader(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with app.running():
        client, archive = app.client, app.client.stack.archive
        await app.adeploy_script(WAITS)
        execution = await client.start("waits")
        await come_about(lambda: app.engine.worker is not None and app.engine.worker.steps_done > 0, "a step")
        view = await client.status(execution)
        reads = _count_reads(archive, monkeypatch)
        hub = Broadcast(archive, asyncio.Event())
        app.engine.observe(hub)
        watches = [hub.watch(view, view.seq, 5.0) for _ in range(50)]
        first = [asyncio.ensure_future(anext(watch)) for watch in watches]
        await asyncio.sleep(0)
        await client.signal(execution, "other", 1)
        batches = await asyncio.gather(*first)
        assert len({frame.text for batch in batches for frame in batch}) == 1
        assert len(reads) < 10
        for watch in watches:
            await watch.aclose()
        assert not hub._feeds


def _count_reads(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    reads: list[int] = []
    read = archive.events

    async def counted(execution: str, after: int = 0, limit: int = 1000) -> list[Event]:
        reads.append(after)
        return await read(execution, after, limit)

    monkeypatch.setattr(archive, "events", counted)
    return reads


async def test_silence_is_filled_and_a_closing_server_ends_its_streams(app: App) -> None:
    async with app.running():
        await app.adeploy_script(WAITS)
        execution = await app.client.start("waits")
        closing = asyncio.Event()
        hub = Broadcast(app.client.stack.archive, closing)
        stream = execution_stream(hub, await app.client.status(execution), 0, heartbeat=0.05)
        texts = [await anext(stream) for _ in range(4)]
        assert texts[0].startswith(b"retry: ")
        assert texts[-1].startswith(b": ")
        closing.set()
        rest = [text async for text in stream]
    assert not any(b"event: end" in text for text in rest), "its readers come back"


async def test_a_removed_execution_ends_its_stream(app: App) -> None:
    async with app.running():
        await app.adeploy_script(WAITS)
        execution = await app.client.start("waits")
        view = await app.client.status(execution)
        hub = Broadcast(app.client.stack.archive, asyncio.Event())
        await app.client.cancel(execution)
        await app.client.wait(execution)
        assert await app.client.stack.archive.remove([execution]) == [execution]
        texts = [text async for text in execution_stream(hub, view, 0)]
    assert texts[-1] == b'event: end\ndata: {"state":null,"last":0}\n\n'


async def test_a_store_out_of_reach_interrupts_the_stream(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> list[Event]:
        raise Unavailable("the disk is gone")

    async with app.running():
        await app.adeploy_script(WAITS)
        execution = await app.client.start("waits")
        hub = Broadcast(app.client.stack.archive, asyncio.Event())
        view = await app.client.status(execution)
        with monkeypatch.context() as patched:
            patched.setattr(app.client.stack.archive, "events", broken)
            texts = [text async for text in execution_stream(hub, view, 0)]
    assert texts == [OPENING]


async def test_a_listener_that_is_too_slow_is_told_what_it_lost(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_changes, "WAITING", 3)
    async with app.running():
        client = app.client
        await app.adeploy_script(WAITS)
        told = state_changes.Changes(client.stack.archive, client.stack.clock, asyncio.Event())
        app.engine.observe(told)
        listener = await told.open(None)
        listening = told.listen(listener, 5.0)
        first = asyncio.ensure_future(anext(listening))
        await asyncio.sleep(0)
        await client.start("waits")
        assert len((await first)[0]) == 1
        for _ in range(5):
            await client.start("waits")
        batch, lost = await anext(listening)
        await listening.aclose()
        told.close(listener)
    assert (len(batch), lost) == (3, 2)


async def test_the_seat_is_left_when_the_reader_goes(app: App) -> None:
    """However a response ends, and even if nobody ever reads it."""

    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def sent(_message: Any) -> None:
        await asyncio.sleep(3600)

    async with app.running():
        await app.adeploy_script(WAITS)
        execution = await app.client.start("waits")
        hub = Broadcast(app.client.stack.archive, asyncio.Event())
        usage = KeyUsage(lambda key: NO_QUOTAS, 1)
        over = usage.open_stream(OPEN)
        view = await app.client.status(execution)
        await EventStream(execution_stream(hub, view, 0), over)({}, gone, sent)
    assert not usage.open_streams


# -- from now on ----------------------------------------------------------------------------------------------


@LASTING
async def test_the_stream_of_all_begins_when_it_is_opened_and_is_in_order(store_url: str) -> None:
    """What another process did before is not told, however short ago; what it does then comes in its order."""
    elsewhere = App(store_url)
    seen: list[dict[str, Any]] = []
    with LiveServer(App(store_url), roles=Roles(worker=False)) as live:
        async with (
            httpx.AsyncClient(base_url=live.url, timeout=PATIENT) as http,
            elsewhere.running(worker=True, scheduler=False),
        ):
            await elsewhere.adeploy("{name: says, nodes: [{id: a, type: log, parameters: {message: hi}}]}")
            await elsewhere.client.wait(await elsewhere.client.start("says"))
            async with http.stream("GET", "/v1/stream") as answer:
                later = []
                for _ in range(3):
                    later.append(await elsewhere.client.start("says"))
                    await elsewhere.client.wait(later[-1])
                async for event in read_stream(answer):
                    if event.kind != ":":
                        seen.append(event.data)
                    if len(seen) == 6:
                        break
    told = ["ExecutionStarted", "ExecutionCompleted"]
    assert [(each["execution"], each["kind"]) for each in seen] == [
        (execution, kind) for execution in later for kind in told
    ]


async def test_a_page_of_events_after_one_that_does_not_exist_is_refused(http: httpx.AsyncClient) -> None:
    started = await http.post("/v1/executions", json={"definition": GRAPH, "input": {"n": 1}})
    execution = started.json()["id"]
    number = (await ended(http, execution))["events"]

    page = (await http.get(f"/v1/executions/{execution}/events", params={"after": number})).json()
    assert page == {"events": [], "last": number}

    for path in ("events", "stream"):
        answer = await http.get(f"/v1/executions/{execution}/{path}", params={"after": number + 1})
        assert answer.status_code == 422, path
        assert answer.json()["detail"].endswith(f"has {number} events so far; there is no event {number + 1}")
