"""Published values and streams of executions that a server runs."""

from __future__ import annotations

import httpx
import pytest

from dalsegno import App, Client, NotFound, TaskContext
from tests.server.conftest import LiveServer

SCRIPT = """
publish("stage", "first")
progress(1, 2, "half")
Stream.write("answer", "Once ")
await Signal.next("go")
publish("stage", {name: "last"})
Stream.write("answer", "upon")
Stream.close("answer")
log("said")
return inputs
"""


def test_values_and_chunks_are_followed_over_http(client: Client, live: LiveServer) -> None:
    client.deploy_script(SCRIPT, "tells")
    run = client.start("tells", {"n": 1})
    watched = run.watch()
    first = {each.key: each.value for each in (next(watched), next(watched))}
    assert first == {"stage": "first", "progress": {"done": 1, "total": 2, "text": "half"}}
    chunks = run.stream("answer")
    assert next(chunks).value == "Once "

    run.signal("go")

    assert [(each.key, each.value) for each in watched] == [("stage", {"name": "last"})]
    assert [(each.offset, each.value) for each in chunks] == [(1, "upon")]
    assert run.published("stage") == {"name": "last"}
    assert [each.value for each in run.stream("answer", offset=1)] == ["upon"]
    assert [line.value["message"] for line in run.logs()] == ["said"]
    place = f"{live.url}/v1/executions/{run.id}"
    streams = httpx.get(f"{place}/streams").json()["streams"]
    assert [(each["name"], each["length"], each["closed"]) for each in streams] == [
        ("answer", 2, True),
        ("log", 1, False),
    ]
    page = httpx.get(f"{place}/streams/answer/chunks", params={"limit": 1}).json()
    assert ([each["value"] for each in page["chunks"]], page["next"], page["closed"]) == (["Once "], 1, False)
    again = httpx.get(f"{place}/streams/answer", headers={"Last-Event-ID": "0"}).text
    assert "id: 1\nevent: chunk\n" in again
    assert "id: 0\n" not in again
    events = httpx.get(f"{place}/stream").text
    assert "event: published\ndata: " in events
    assert "event: progress\ndata: " in events
    assert events.index("event: published") < events.index("event: end")


def test_an_execution_that_does_not_exist_publishes_nothing(client: Client) -> None:
    with pytest.raises(NotFound):
        client.handle("none").published()
    with pytest.raises(NotFound):
        next(client.handle("none").watch())
    with pytest.raises(NotFound):
        next(client.handle("none").stream("answer"))


async def test_async_watchers_of_a_task(client: Client, app: App) -> None:
    @app.task
    async def tells(ctx: TaskContext) -> int:
        ctx.publish("n", 1)
        ctx.stream("answer").write({"n": 1})
        return 1

    document = {"name": "one", "nodes": [{"id": "a", "type": "task", "parameters": {"task": "tells"}}]}
    await client.adeploy(document)
    run = await client.astart("one")
    assert [each.value async for each in run.awatch("n")] == [1]
    assert [each.value async for each in run.astream("answer")] == [{"n": 1}]
    assert await run.apublished() == {"n": 1}
