"""Programs that call a server: what is started by name is untyped, a workflow function has its own types."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_type

from dalsegno import Client, Handle
from dalsegno.admin.alerts import Alert
from dalsegno.admin.keys import NewKey
from dalsegno.admin.webhooks import Webhook
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionView
from dalsegno.model.limits import LimitView


def plain(client: Client) -> None:
    run = client.start("order", count=2)
    assert_type(run, Handle)
    assert_type(run.result(timeout=3), Any)
    assert_type(client.with_options(tags={"a": "b"}, delay="5m").start("order", {"count": 2}), Handle)
    assert_type(client.executions("order", states=("FAILED",)), Iterator[ExecutionView])
    assert_type(client.stream(run), Iterator[Event])
    assert_type(client.validate("name: x").valid, bool)
    assert_type(client.keys.add("ci", ["run"]), NewKey)
    assert_type(client.limits.list(), list[LimitView])
    assert_type(client.dead_letters.retry("execution:1"), Handle)
    assert_type(client.webhooks.put("push", "build", signature="stripe").webhook, Webhook)
    client.keys.add("ci", ["everything"])  # type: ignore[list-item]
    client.webhooks.put("push", "build", signature="morse")  # type: ignore[arg-type]
    client.start(7)  # type: ignore[call-overload]
    client.executions(states=("BROKEN",))  # type: ignore[arg-type]


async def twins() -> None:
    async with Client("http://127.0.0.1:8700", key="ds_key") as client:
        run = await client.astart("order", count=2)
        assert_type(await run.astatus(), ExecutionView)
        assert_type(client.astream(run), AsyncIterator[Event])
        async for view in client.aexecutions():
            assert_type(view, ExecutionView)
        assert_type(await client.keys.aadd("ci", ["run"]), NewKey)
        assert_type(await client.alerts.aget("ops"), Alert)
