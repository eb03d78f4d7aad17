"""Waiting for executions that another process runs: its message brings the result, long before anybody looks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dalsegno import App
from dalsegno.adapters.postgres import PostgresNeighbours
from dalsegno.engine.operations import endings
from tests.adapters.postgres.meanwhile import until
from tests.adapters.postgres.programs import app_of, chain_of

MANY = 40


async def test_results_come_by_message(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endings, "FIRST_POLL", 3600.0)
    file = tmp_path / "program.py"
    file.write_text(chain_of(2))
    client, worker = (app_of(file, postgres_url, lease_seconds=10.0) for _ in range(2))
    async with client.running(worker=False, scheduler=False), worker.running():
        await until(lambda: knows_that_somebody_waits(worker, client))
        asked = counted(client, monkeypatch)

        async with asyncio.timeout(30):
            results = await asyncio.gather(*(result_of(client, n) for n in range(MANY)))

    assert results == [n * 4 for n in range(MANY)]
    assert 0 < len(asked) < MANY


def knows_that_somebody_waits(worker: App, client: App) -> bool:
    client.engine.endings.waiting()  # says so again where it was not heard
    return bool(neighbours_of(worker)._watchers)


async def result_of(app: App, n: int) -> int:
    found: int = await (await app.astart("chain", n)).aresult()
    return found


def neighbours_of(app: App) -> PostgresNeighbours:
    neighbours = app.engine.stack.neighbours
    assert isinstance(neighbours, PostgresNeighbours)
    return neighbours


def counted(app: App, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many endings each reading is about."""
    asked: list[int] = []
    archive = app.engine.stack.archive
    really = archive.endings

    async def counting(executions: list[str]) -> object:
        asked.append(len(executions))
        return await really(executions)

    monkeypatch.setattr(archive, "endings", counting)
    return asked
