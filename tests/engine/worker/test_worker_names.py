"""The names that a worker is leased tokens under: the store has heard of each before, and hears of it as long as
something runs under it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest

from dalsegno import App
from dalsegno.adapters.memory import MemoryLedger, MemoryStore
from dalsegno.engine.engine import Engine
from dalsegno.engine.settings import EngineSettings
from dalsegno.engine.worker import heartbeat
from dalsegno.engine.worker import heartbeat as retired_names
from dalsegno.engine.worker.heartbeat import Heartbeat, Names
from dalsegno.engine.worker.worker import Worker
from dalsegno.errors import Unavailable
from dalsegno.model.token import Lease
from dalsegno.model.transition import Outcome, ReadyToken, Transition
from dalsegno.ports.ledger import Ledger
from dalsegno.testing.clock import FakeClock
from tests.scenarios.documents import graph, task
from tests.waiting import come_about, until

LEASE = 60.0


class Program:
    """An application with one task, which notes under which names its worker went by then."""

    def __init__(self, url: str) -> None:
        self.app = App(url, settings=EngineSettings(lease_seconds=LEASE))
        self.seen: list[set[str]] = []
        self.app.task(name="look")(self._look)

    async def _look(self, value: int) -> int:
        self.seen.append(self.worker.names())
        return value

    @property
    def engine(self) -> Engine:
        return self.app.engine

    @property
    def worker(self) -> Worker:
        assert self.engine.worker is not None
        return self.engine.worker

    async def deploy(self) -> None:
        await self.app.adeploy(graph("a", {"a": task("look", 1)}))

    async def wake(self) -> None:
        """Whoever waits for work claims once more."""
        await self.engine.stack.broker.announce([ReadyToken("t", "e", "default", 0)])


class Outage:
    """Of a ledger: claims fail, and so do beats, until each of them is let through again."""

    def __init__(self, ledger: Ledger, patch: pytest.MonkeyPatch) -> None:
        self.claims = self.beats = True
        """Whether they fail."""
        self.failed_beats = 0
        self.stored: set[str] = set()
        claim, heartbeat = ledger.claim, ledger.heartbeat

        async def claim_or_fail(worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
            if self.claims:
                raise Unavailable("the store is away")
            return await claim(worker, queues, limit)

        def beat_or_fail(worker: str, lease_seconds: float, info: bytes = b"") -> None:
            if self.beats:
                self.failed_beats += 1
                raise Unavailable("the store is away")
            heartbeat(worker, lease_seconds, info)
            self.stored.add(worker)

        patch.setattr(ledger, "claim", claim_or_fail)
        patch.setattr(ledger, "heartbeat", beat_or_fail)


async def test_nothing_is_leased_under_a_name_before_a_beat_of_it_is_stored(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(url)
    async with program.app.running():
        await program.deploy()
        first = program.worker.name
        outage = Outage(program.engine.stack.ledger, monkeypatch)

        async def takes_in_vain() -> bool:
            await program.wake()
            return program.worker.name != first

        await come_about(takes_in_vain, "the claim fails, and the worker goes on under a new name")
        outage.claims = False
        handle = await program.app.astart("scenario")
        await come_about(lambda: outage.failed_beats >= 3, "the beat is tried again", LEASE / 4)
        assert program.seen == [], "neither kept by its start nor taken"

        outage.beats = False
        assert await handle.aresult(timeout=LEASE / 4) == 1
        assert program.seen == [{program.worker.name}]
        assert program.seen[0] <= outage.stored
        assert await (await program.app.astart("scenario")).aresult(timeout=LEASE / 4) == 1


async def test_what_is_leased_under_a_name_given_up_meanwhile_goes_back(url: str) -> None:
    """A claim may wait for long after its worker has another name; its own one has died then."""
    program = Program(url)
    async with program.app.running():
        await program.deploy()
        worker, ledger = program.worker, program.engine.stack.ledger
        worker._continues = False
        await asyncio.sleep(0.1)  # it waits for work
        first = worker.name
        worker.give_up_name(first)
        await come_about(worker.names.may_lease, "the new name is stored")
        await ledger.expire((first,))

        handle = await program.app.astart("scenario")

        assert await handle.aresult(timeout=LEASE / 4) == 1
        assert program.seen == [{worker.name}]


async def test_start_that_is_answered_after_its_name_was_given_up_keeps_that_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = Program("memory:")
    async with program.app.running():
        await program.deploy()
        worker, ledger = program.worker, program.engine.stack.ledger
        first, commit = worker.name, ledger.commit

        async def doubt_then_commit(batch: Sequence[Transition]) -> list[Outcome]:
            worker.give_up_name(first)
            return await commit(batch)

        monkeypatch.setattr(ledger, "commit", doubt_then_commit)
        handle = await program.app.astart("scenario")

        assert await handle.aresult(timeout=LEASE / 4) == 1
        assert program.seen == [{first, worker.name}]


class Deaf(MemoryLedger):
    """Stores no beat but the first, until it hears again."""

    def __init__(self) -> None:
        super().__init__(FakeClock(), MemoryStore())
        self.hears = threading.Event()
        self.beats: list[tuple[str, float]] = []

    def heartbeat(self, worker: str, lease_seconds: float, info: bytes = b"") -> None:
        self.beats.append((worker, time.monotonic()))
        if len(self.beats) > 1 and not self.hears.is_set():
            raise Unavailable("the store is away")
        super().heartbeat(worker, lease_seconds, info)


def test_beat_that_is_not_stored_is_tried_again_soon_and_then_less_often() -> None:
    ledger = Deaf()
    names = Names("w", list)
    heartbeat = Heartbeat(ledger, names, LEASE)
    heartbeat.start()
    try:
        assert names.may_lease()
        assert names.give_up("w")
        heartbeat.soon()
        until(lambda: len(ledger.beats) >= 4, "it is tried again and again", LEASE / 4)
        assert not names.may_lease()
        assert {name for name, _ in ledger.beats[1:]} == {"w.1"}
        first, second, third = [at for _, at in ledger.beats[1:4]]
        assert 0.4 < second - first < third - second

        ledger.hears.set()
        until(names.may_lease, "it is stored", LEASE / 4)
        known = len(ledger.beats)
        time.sleep(0.6)
        assert len(ledger.beats) == known, "the next one has time"
    finally:
        heartbeat.stop()


def test_name_is_given_up_once_however_many_doubt_it() -> None:
    names = Names("w", lambda: ["w"])

    assert names.give_up("w")
    assert not names.give_up("w")
    assert (names.current, names()) == ("w.1", {"w", "w.1"})
    names.note_stored("w")
    assert not names.may_lease()
    names.note_stored("w.1")
    assert names.may_lease()


async def test_what_is_leased_under_a_name_given_up_is_taken_back_long_before_it_lapses(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a claim whose answer was lost."""
    monkeypatch.setattr(heartbeat, "RETIRED_AFTER", 0.05)
    monkeypatch.setattr(retired_names, "LOOK_EVERY", 0.05)
    program = Program(url)
    async with program.app.running():
        await program.deploy()
        worker, ledger = program.worker, program.engine.stack.ledger
        worker._continues = False
        first = worker.name
        lost = Lost(ledger, monkeypatch)
        handle = await program.app.astart("scenario")

        await come_about(lambda: worker.name != first, "the answer to the claim is lost")

        assert lost.leases == 1
        assert await handle.aresult(timeout=LEASE / 4) == 1
        assert [view.id for view in await ledger.workers()] == [worker.name]
        assert worker.names.retired() == []
    assert "took back 1 lease of which this worker had not heard" in caplog.text


def test_a_name_is_retired_when_it_was_given_up_a_while_ago_and_nothing_runs_under_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(heartbeat, "RETIRED_AFTER", 0.0)
    in_use = ["w"]
    names = Names("w", lambda: in_use)
    assert names.retired() == []
    names.give_up("w")
    assert names.retired() == []

    in_use.clear()
    assert names.retired() == ["w"]
    monkeypatch.setattr(heartbeat, "RETIRED_AFTER", 60.0)
    assert names.retired() == []

    monkeypatch.setattr(heartbeat, "RETIRED_AFTER", 0.0)
    names.forget(["w"])
    assert names.retired() == []


class Lost:
    """The answer to the first claim that leases something."""

    def __init__(self, ledger: Ledger, patch: pytest.MonkeyPatch) -> None:
        self.leases = 0
        claim = ledger.claim

        async def claim_and_lose(worker: str, queues: Sequence[str], limit: int) -> list[Lease]:
            leases = await claim(worker, queues, limit)
            if leases and not self.leases:
                self.leases = len(leases)
                raise Unavailable("the connection is lost")
            return leases

        patch.setattr(ledger, "claim", claim_and_lose)
