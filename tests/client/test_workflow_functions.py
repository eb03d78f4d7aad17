"""A client that has the function of a deployed workflow: its arguments are checked here, its result is decoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dalsegno import App, Client, InvalidInput, UsageError, WorkflowFailed
from dalsegno.lang.python import DurableTask, DurableWorkflow
from tests.server.conftest import LiveServer
from tests.servers.sqlite import empty_sqlite


@dataclass
class Order:
    id: int


@dataclass
class Receipt:
    number: int
    note: str


@dataclass
class Shop:
    client: Client
    checkout: DurableWorkflow[Any, Receipt]
    charge: DurableTask[Any, Any]
    refusals: list[int]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    app = App(empty_sqlite(tmp_path / "server.db"))
    refusals: list[int] = []

    @app.task
    async def charge(order: Order) -> int:
        if refusals:
            raise ValueError(f"no luck with {refusals.pop()}")
        return order.id

    @app.workflow(name="check-out")
    async def checkout(order: Order, note: str = "") -> Receipt:
        return Receipt(await charge(order), note)

    with LiveServer(app) as server, Client(server.url) as client:
        yield Shop(client, checkout, charge, refusals)


def test_arguments_are_those_of_the_function_and_the_result_has_its_type(shop: Shop) -> None:
    handle = shop.client.start(shop.checkout, Order(3), note="x")
    assert handle.result(timeout=10) == Receipt(3, "x")
    assert handle.status().workflow == "check-out"
    by_name = shop.client.start("check-out", {"order": {"id": 3}})
    assert by_name.result(timeout=10) == {"number": 3, "note": ""}


def test_options_stand_apart(shop: Shop) -> None:
    options = shop.client.with_options(idempotency_key="o-1", tags={"a": "b"})
    handle = options.start(shop.checkout, Order(3))
    assert options.start(shop.checkout, Order(3)).id == handle.id
    assert handle.status().tags == (("a", "b"),)


async def test_twins_and_two_steps(shop: Shop) -> None:
    async with Client(shop.client.url) as client:
        handle = await client.asubmit(shop.checkout, Order(3))
        assert (await handle.astatus()).state == "PENDING"
        await handle.atrigger()
        assert await handle.aresult(timeout=10) == Receipt(3, "")


def test_a_retry_has_the_type_of_the_first(shop: Shop) -> None:
    shop.refusals.append(7)
    handle = shop.client.start(shop.checkout, Order(3))
    with pytest.raises(WorkflowFailed, match="no luck with 7"):
        handle.result(timeout=10)
    assert handle.retry().result(timeout=10) == Receipt(3, "")


def test_wrong_calls_are_refused_here(shop: Shop) -> None:
    with pytest.raises(InvalidInput, match="workflow 'check-out': missing a required argument: 'order'"):
        shop.client.start(shop.checkout)
    with pytest.raises(UsageError, match="tasks of this program run with App"):
        shop.client.start(shop.charge, Order(3))  # type: ignore[call-overload]
