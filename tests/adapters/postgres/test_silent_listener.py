"""A listener whose connection dies without a sign notices it, says so and connects again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from dalsegno.adapters.neighbours import Message
from dalsegno.adapters.postgres import Listener
from dalsegno.adapters.postgres.messaging import listener as listener_module
from tests.adapters.postgres.meanwhile import act_beside, until
from tests.adapters.postgres.wire import Wire


@pytest.fixture
async def wire(postgres_url: str) -> AsyncIterator[Wire]:
    async with Wire(postgres_url) as wire:
        yield wire


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "LONGEST_SILENCE", 0.1)
    monkeypatch.setattr(listener_module, "ANSWER_SECONDS", 2.0)


@pytest.fixture
async def listener(wire: Wire, hasty: None) -> AsyncIterator[Listener]:
    listener = Listener(wire.url)
    listener.start()
    await until(lambda: listener.sent)
    yield listener
    await listener.close()


async def test_a_connection_that_dies_silently_is_noticed_and_replaced(
    wire: Wire, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    gone = asyncio.Event()
    listener.on_disconnect = gone.set

    wire.go_dead()
    await until(lambda: not listener.working)

    assert gone.is_set()
    assert "lost PostgreSQL" in caplog.text
    wire.come_back()
    await until(lambda: listener.working)


async def test_a_message_that_nobody_takes_is_noticed_too(wire: Wire, listener: Listener) -> None:
    wire.go_dead()
    listener.send(Message(listener.name, owed=True))

    await until(lambda: not listener.working)


async def test_silence_alone_is_no_loss(listener: Listener, caplog: pytest.LogCaptureFixture) -> None:
    asked = 0

    async def count() -> None:
        nonlocal asked
        asked += 1

    with pytest.MonkeyPatch.context() as patch:
        act_beside(patch, asyncpg.Connection, "execute", about="SELECT 1", before=count)
        await until(lambda: asked >= 3)

    assert listener.working
    assert caplog.text == ""
