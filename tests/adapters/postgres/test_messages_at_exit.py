"""Processes that end at once after they have announced something, or announce it before anybody can hear them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from dalsegno.adapters.neighbours import Message, summary_of
from dalsegno.adapters.postgres import PostgresNeighbours
from dalsegno.adapters.postgres.messaging import listener as listener_module
from dalsegno.engine.operations.limits import NO_TOKEN
from dalsegno.testing.contract import ContractStack
from dalsegno.testing.contract.builders import start, token
from tests.adapters.postgres.meanwhile import SOON, until
from tests.adapters.postgres.processes import begin, broker_of, tarrying, two, waiting
from tests.adapters.postgres.stacks import PostgresStacks
from tests.servers.postgres import PostgresServer


@pytest.fixture
async def stacks(postgres_url: str) -> AsyncIterator[PostgresStacks]:
    stacks = PostgresStacks(postgres_url)
    yield stacks
    await stacks.close()


@pytest.fixture
def silent_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


class Slow:
    """Listeners that are opened from now on do not come before ``go_on`` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = asyncio.Event()
        self._connect = listener_module.connect_alone
        monkeypatch.setattr(listener_module, "connect_alone", self._connect_later)

    async def _connect_later(self, *given: Any) -> Any:
        await self.go_on.wait()
        return await self._connect(*given)


async def idle_one(stacks: PostgresStacks) -> tuple[ContractStack, asyncio.Task[Any]]:
    """A process that waits for work and has said so before anybody else came."""
    there = await stacks.open()
    await until(lambda: broker_of(there).listener.working)
    taking = await waiting(there)
    await until(lambda: broker_of(there)._reported)
    return there, taking


async def test_message_that_waits_to_be_sent_goes_out_before_the_end(stacks: PostgresStacks) -> None:
    here, there = await two(stacks)
    taking = await waiting(there, here)

    await begin(here, "run-1", "a")
    await here.broker.close()

    assert [lease.token for lease in await asyncio.wait_for(taking, SOON)] == ["a"]


async def test_whoever_says_only_later_that_it_is_idle_is_woken(
    stacks: PostgresStacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is silent for a moment because it was woken in vain: nobody would be there to answer it."""
    here, there = await two(stacks)
    taking, go_on = await tarrying(there, monkeypatch)
    await begin(here, "run-1", "a")
    await here.broker.close()
    go_on.set()

    assert [lease.token for lease in await asyncio.wait_for(taking, SOON)] == ["a"]


async def test_process_that_ends_before_its_listener_has_come(
    stacks: PostgresStacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    _there, taking = await idle_one(stacks)
    Slow(monkeypatch)
    here = await stacks.open()

    await begin(here, "run-1", "a")
    await here.broker.close()

    assert [lease.token for lease in await asyncio.wait_for(taking, SOON)] == ["a"]


async def test_what_was_announced_before_the_listener_came_is_told_when_it_comes(
    stacks: PostgresStacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    _there, taking = await idle_one(stacks)
    slow = Slow(monkeypatch)
    here = await stacks.open()
    await begin(here, "run-1", "a")
    await asyncio.sleep(0.5)  # longer than an announcement is remembered

    slow.go_on.set()

    assert [lease.token for lease in await asyncio.wait_for(taking, SOON)] == ["a"]


async def test_timer_and_debt_told_before_the_listener_came(
    stacks: PostgresStacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = await stacks.open()
    heard: list[object] = []
    listening = broker_of(there).listener
    await until(lambda: listening.working)
    PostgresNeighbours(there.ledger, listening, broker_of(there)).on_upkeep(
        heard.append, lambda: heard.append("owed"), lambda: None
    )
    Slow(monkeypatch)
    here = await stacks.open()
    neighbours = PostgresNeighbours(here.ledger, broker_of(here).listener, broker_of(here))
    due = here.ledger.now() + 5

    neighbours.announce_due(due + 3)
    neighbours.announce_due(due)
    neighbours.announce_outbox()
    await asyncio.sleep(0)
    await here.broker.close()

    await until(lambda: heard == [due, "owed"])


async def test_what_was_left_to_a_worker_of_the_process_itself_is_told(stacks: PostgresStacks) -> None:
    """It waits for work and is stopped before it has this."""
    here, there = await two(stacks)
    taking = await waiting(there, here)
    own = await waiting(here, there, worker="w2")
    [applied] = await here.apply(start("run-1", token("a")))
    own.cancel()  # it is still among those who wait when the token is announced

    await here.broker.announce(applied.ready)
    await here.broker.close()

    assert [lease.token for lease in await asyncio.wait_for(taking, SOON)] == ["a"]


async def test_that_something_has_changed_is_told(
    stacks: PostgresStacks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a limit is raised: nobody knows which queues that concerns."""
    here, there = await two(stacks)
    taking, go_on = await tarrying(there, monkeypatch)
    await here.apply(start("run-1", token("a")))

    await here.broker.announce([NO_TOKEN])
    await here.broker.close()
    go_on.set()

    assert [lease.token for lease in await asyncio.wait_for(taking, SOON)] == ["a"]


async def test_last_words_reach_the_second_server_of_a_url(
    stacks: PostgresStacks, postgres_url: str, silent_port: int
) -> None:
    """The first one accepts connections and says nothing."""
    _there, taking = await idle_one(stacks)
    parts = urlsplit(postgres_url)
    several = parts._replace(netloc=f"{parts.username}@127.0.0.1:{silent_port},{parts.hostname}:{parts.port}")
    here = await stacks.open(listen_at=several.geturl())

    await begin(here, "run-1", "a")
    await here.broker.close()

    assert [lease.token for lease in await asyncio.wait_for(taking, SOON)] == ["a"]


async def test_nothing_is_said_by_those_who_have_announced_nothing(stacks: PostgresStacks) -> None:
    here, there = await two(stacks)
    taking = await waiting(there, here)
    heard: list[Message] = []
    broker_of(there).listener.on_message = heard.append

    await here.broker.close()
    await asyncio.sleep(0.3)

    assert heard == []
    taking.cancel()


async def test_end_while_the_server_is_away(private_postgres: PostgresServer) -> None:
    stacks = PostgresStacks(private_postgres.url)
    here, _there = await two(stacks)
    await begin(here, "run-1", "a")
    private_postgres.kill()

    async with asyncio.timeout(listener_module.FINAL_SEND_SECONDS + SOON):
        await stacks.close()


def test_only_what_is_of_use_later_is_kept() -> None:
    passing = [
        Message("p", hello=True),
        Message("p", idle=("default",), since=1.0),
        Message("p", tended=True),
        Message("p", watches=True),
    ]

    assert summary_of("p", passing) is None
    assert summary_of("p", [*passing, Message("p", wake=("q",))]) == Message("p", news=True)
    assert summary_of(
        "p", [Message("p", due=7.0), Message("p", owed=True), Message("p", due=5.0)]
    ) == Message("p", due=5.0, owed=True)
