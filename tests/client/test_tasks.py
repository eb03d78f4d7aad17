"""``client.tasks``: what is open at a server, settled by hand, by both kinds of calls."""

from __future__ import annotations

from typing import Any

import pytest

from dalsegno import App, Client, Conflict, InvalidInput, WorkflowFailed
from tests.server.conftest import LiveServer
from tests.waiting import until


@pytest.fixture
def app(app: App) -> App:
    certificate = app.remote_task("certificate", queue="office", returns=dict[str, int])

    @app.workflow
    async def certify(name: str) -> Any:
        return await certificate(name)

    return app


def test_task_is_completed_once(client: Client) -> None:
    run = client.start("certify", "Ada")
    [task] = until(lambda: client.tasks.list(run.id), "an open task")
    assert client.tasks.get(task.id).input == "Ada"
    assert [each.id for each in client.tasks.list(queue="office", limit=1)] == [task.id]
    with pytest.raises(InvalidInput, match="does not fit"):
        client.tasks.complete(task.id, {"number": "x"})
    client.tasks.complete(task.id, {"number": 4}, reason="at the desk")
    assert run.result(timeout=30) == {"number": 4}
    with pytest.raises(Conflict, match="has ended"):
        client.tasks.skip(task.id)


async def test_async_twins(live: LiveServer) -> None:
    async with Client(live.url) as client:
        run = await client.astart("certify", "Ada")
        found: list[Any] = []
        while not found:
            found = await client.tasks.alist(run.id)
        assert (await client.tasks.aget(found[0].id)).state == "queued"
        with pytest.raises(Conflict, match="already"):
            await client.tasks.arequeue(found[0].id)
        await client.tasks.afail(found[0].id, "no such person", by="Eva")
        with pytest.raises(WorkflowFailed, match="no such person"):
            await run.aresult(timeout=30)
