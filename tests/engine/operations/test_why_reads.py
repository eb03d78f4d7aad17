"""``why`` reads the store once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from dalsegno import App
from dalsegno.adapters.sqlite import SqliteStore

JOIN = {
    "name": "meets",
    "nodes": [
        {"id": "early", "type": "log", "queue": "gpu", "parameters": {"message": "here"}},
        {"id": "late", "type": "wait", "parameters": {"resume": "signal", "signal": "go"}},
        {"id": "both", "type": "merge", "parameters": {}},
    ],
    "edges": [{"src": "early", "dst": "both"}, {"src": "late", "dst": "both"}],
}
LIMITED = {
    "name": "limited",
    "nodes": [
        {
            "id": "it",
            "type": "log",
            "queue": "gpu",
            "parameters": {"message": "here"},
            "concurrency": {"key": "mail", "limit": 1, "rate": "1/h"},
        }
    ],
}
SCRIPT = 'const one = Task.with({queue: "gpu"}).run("one", 1)\nawait Promise.all([one, Signal.next("go")])\n'


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "postgres":
        found: str = request.getfixturevalue("empty_postgres")()
        return found
    return f"sqlite:///{tmp_path}/reads.db"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Statements sent to PostgreSQL, and jobs given to SQLite's reader, by the test itself and no loop beside it."""
    found: list[str] = []

    def noted(name: str, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def spy(self: Any, *arguments: Any, **keywords: Any) -> Any:
            task = asyncio.current_task()
            if task is not None and "test_" in str(task.get_coro()):
                found.append(f"{name} {str(arguments[0])[:60]}")
            return await call(self, *arguments, **keywords)

        return spy

    for kind, name in (
        (asyncpg.Connection, "_execute"),
        (asyncpg.Connection, "execute"),
        (SqliteStore, "read"),
    ):
        monkeypatch.setattr(kind, name, noted(name, getattr(kind, name)))
    return found


@pytest.mark.parametrize("name", ["meets", "limited", "asks"])
async def test_answer_takes_one_statement(url: str, reads: list[str], name: str) -> None:
    app = App(url)
    await app.host_here()
    await app.adeploy(JOIN)
    await app.adeploy(LIMITED)
    await app.adeploy_script(SCRIPT, "asks")
    execution = await app.client.start(name)
    first = await app.client.why(execution)
    assert {wait.kind for wait in first} & {"queued", "limit"}
    await app.client.stack.records.put("trouble", "token:nobody", b"{}")

    reads.clear()
    again = await app.client.why(execution)

    assert len(reads) == 1, reads
    assert again == first
    await app.aclose()


async def test_all_children_of_a_parent_are_read_together(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app = App(url)
    await app.host_here()
    await app.adeploy_script('await Signal.next("never")', "child")
    await app.adeploy_script('await Promise.all([1, 2, 3].map(n => Workflow.run("child", {n: n})))', "parent")
    async with app.running():
        handle = await app.astart("parent")
        for _ in range(1000):
            kinds = [wait.kind for wait in await handle.awhy()]
            if kinds.count("signal") == 3:
                break
            await asyncio.sleep(0.01)
        read: list[int] = []
        ledger = type(app.client.stack.ledger)
        examine = ledger.examine

        async def spy(self: Any, executions: Any, *rest: Any) -> Any:
            read.append(len(executions))
            return await examine(self, executions, *rest)

        monkeypatch.setattr(ledger, "examine", spy)
        waits = await handle.awhy()

    assert [wait.kind for wait in waits].count("signal") == 3
    assert read == [1, 3]
