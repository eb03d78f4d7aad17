"""Retries and moves in the users' tests."""

from __future__ import annotations

import pytest

from dalsegno import App, WorkflowFailed
from dalsegno.errors import Conflict
from dalsegno.testing import TestKit

OLD = 'let word = await Signal.when("go")\nreturn ["old", word]'
NEW = 'let n = inputs.n\nlet word = await Signal.when("go")\nreturn ["new", word]'


def shop() -> App:
    app = App("memory:")

    @app.task
    async def charge(n: int) -> int:
        return n

    @app.task
    async def ship(n: int) -> str:
        return f"sent {n}"

    @app.workflow
    async def order(n: int) -> list[object]:
        return [await charge(n), await ship(n)]

    return app


def test_a_retry_goes_on_from_the_failure() -> None:
    with TestKit(shop()) as kit:
        paid = kit.mock("charge", returns=700)
        kit.mock("ship", raises=ValueError("no address"))
        handle = kit.start("order", 7)
        with pytest.raises(WorkflowFailed, match="no address"):
            handle.result()

        kit.unmock("ship")
        again = kit.retry(handle)

        assert again.result() == [700, "sent 7"]
        assert paid.call_count == 1
        assert kit.retry(handle, from_start=True).result() == [700, "sent 7"]
        assert paid.call_count == 2


async def test_an_execution_that_waits_is_moved() -> None:
    async with TestKit() as kit:
        await kit.adeploy(OLD, "order")
        handle = await kit.astart("order", n=3)
        await kit.adeploy(NEW, "order")

        assert (await kit.amove(handle, dry_run=True)).state == "movable"
        assert (await kit.amove(handle)).state == "moved"
        await kit.asignal(handle, "go", "yes")
        assert await handle.aresult() == ["new", "yes"]


def test_what_cannot_be_moved_is_refused() -> None:
    with TestKit() as kit:
        kit.deploy(OLD, "order")
        handle = kit.start("order", n=3)
        kit.deploy("return 7", "order")
        with pytest.raises(Conflict, match="is not at this place of the new version"):
            kit.move(handle)
        kit.signal(handle, "go", "yes")
        assert handle.result() == ["old", "yes"]
