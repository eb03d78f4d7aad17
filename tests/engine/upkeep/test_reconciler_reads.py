"""What may move an execution is read one after the other; what changes meanwhile is no reason for alarm."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dalsegno.app import App
from dalsegno.engine.engine import Engine

PARENT = 'workflow parent(inputs) {\n  return await Workflow.run("child", {})\n}\n'
CHILD = 'workflow child(inputs) {\n  return await Signal.when("go")\n}\n'


async def waiting_for_its_child(app: App) -> tuple[str, str]:
    """Nothing of the parent is left but its machine."""
    await app.adeploy_script(CHILD)
    await app.adeploy_script(PARENT)
    parent = await app.astart("parent")
    for _ in range(500):
        children = await app.aexecutions("child")
        if children and await children[0].awhy() and not await app.engine.stack.ledger.ready(parent.id):
            return parent.id, children[0].id
        await asyncio.sleep(0.01)
    raise AssertionError("the child does not wait")


async def test_an_ending_that_is_told_between_two_looks_is_no_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("memory:")
    async with app.running():
        parent, _ = await waiting_for_its_child(app)
        engine: Engine = app.engine
        reconciler = engine.reconciler

        async def told_meanwhile(execution: str) -> bool:
            """Neither running any more when children were read, nor owed any more when the outbox was."""
            await app.handle(execution).asignal("news")
            return False

        monkeypatch.setattr(reconciler, "has_children", told_meanwhile)
        await reconciler.check(parent)
        assert reconciler.stuck == {}

        async def nothing(_execution: str) -> bool:
            return False

        monkeypatch.setattr(reconciler, "has_children", nothing)
        await reconciler.check(parent)
        assert list(reconciler.stuck) == [parent]


async def test_a_child_that_has_not_begun_yet_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("memory:")
    async with app.running():
        parent, child = await waiting_for_its_child(app)
        store: Any = app.engine.stack.archive
        monkeypatch.setattr(store.store.executions[child].row, "state", "PENDING")
        await app.engine.reconciler.check(parent)
        assert app.engine.reconciler.stuck == {}
