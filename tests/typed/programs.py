"""A user's program as type checkers see it: arguments, results, promises and handles have their exact types."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

import msgspec
import pydantic

import dalsegno as ds
from dalsegno import (
    App,
    Handle,
    Request,
    TaskContext,
    approval,
    first,
    gather,
    race,
    request,
    requests,
    run,
    signal,
    sleep,
    start,
)
from dalsegno import sleep as pause
from dalsegno.testing import TestKit

app = App("memory:")


@dataclass
class Order:
    id: int
    cents: int = 0


@dataclass
class Receipt:
    number: int


class Decision(pydantic.BaseModel):
    approved: bool


class Note(msgspec.Struct):
    text: str


@app.task
async def charge(order: Order, *, currency: str = "EUR") -> Receipt:
    return Receipt(order.id)


@app.task(retries=3, timeout="5m")
def count(text: str) -> int:
    return len(text)


@app.task
async def store(ctx: TaskContext, name: str) -> bool:
    return bool(name)


@app.task(queue="slow")
def shrink(ctx: TaskContext, size: int = 1) -> bytes:
    return bytes(size)


@app.workflow
async def checkout(order: Order, note: str = "") -> Receipt:
    await pause("1h")
    return await charge(order, currency=note)


@app.workflow(timeout="7d", name="report")
async def report(days: int) -> list[str]:
    return [str(days)]


@app.workflow
async def silent() -> None:
    await sleep(timedelta(days=1))


# -- in workflows ----------------------------------------------------------------------------------------------------


@app.workflow
async def calls(order: Order) -> int:
    assert_type(await charge(order), Receipt)
    assert_type(await charge(order, currency="CHF"), Receipt)
    assert_type(await count("text"), int)
    assert_type(await store("name"), bool)
    assert_type(await shrink(size=3), bytes)
    assert_type(await checkout(order, note="x"), Receipt)
    assert_type(await report(7), list[str])
    assert_type(await silent(), None)
    assert_type(await charge.with_options(queue="fast")(order), Receipt)
    assert_type(await checkout.with_options(priority=5)(order), Receipt)
    assert_type(await run(checkout, order, note="x"), Receipt)
    assert_type(await run("checkout", order), Any)
    assert_type(start(checkout, order, note="x"), str)
    assert_type(start("checkout", order), str)
    assert_type(await charge(order).named("charged"), Receipt)
    assert_type(await checkout(order).named("checked out"), Receipt)
    both = await gather(charge(order).named("charged"), sleep("1h").named("waited")).named("both")
    assert_type(both, tuple[Receipt, None])
    return 1


@app.workflow
async def joins(order: Order) -> None:
    assert_type(await gather(charge(order)), tuple[Receipt])
    assert_type(await gather(charge(order), count("a")), tuple[Receipt, int])
    six = await gather(charge(order), count("a"), store("b"), shrink(), report(1), sleep(1))
    assert_type(six, tuple[Receipt, int, bool, bytes, list[str], None])
    receipt, length = await gather(charge(order), count("a"), limit=1)
    assert_type(receipt, Receipt)
    assert_type(length, int)
    assert_type(await gather(*[count(word) for word in "abc"]), list[int])
    assert_type(await gather(*[count(word) for word in "abc"], limit=2), list[int])
    either = await gather(charge(order), count("a"), return_exceptions=True)
    assert_type(either, tuple[Receipt | BaseException, int | BaseException])
    outcomes = await gather(*[count(word) for word in "abc"], return_exceptions=True)
    assert_type(outcomes, list[int | BaseException])
    nested = await gather(gather(count("a"), store("b")), first(count("c"), count("d")))
    assert_type(nested, tuple[tuple[int, bool], int])
    assert_type(await first(count("a"), count("b")), int)
    assert_type(await first(charge(order), count("b")), Receipt | int)
    assert_type(await first(*[count(word) for word in "abc"]), int)
    assert_type(await race(count("a"), count("b")), int)
    assert_type(await race(charge(order), sleep("1h")), Receipt | None)
    assert_type(await race(*[count(word) for word in "abc"]), int)
    assert_type(await race(paid=charge(order), late=sleep("1h")), tuple[str, Any])


@app.workflow
async def signals() -> str:
    assert_type(await signal("anything"), Any)
    assert_type(await signal("decided", type=Decision), Decision)
    assert_type(await signal("decided", timeout="7d", type=Order), Order)
    assert_type(await signal("noted", "1h", type=Note), Note)
    assert_type(await signal("counted", type=int), int)
    assert_type(await signal("orders", type=list[Order]), list[Order])
    maybe: Order | None = await signal("maybe", type=Order | None)
    assert_type(maybe.id if maybe else 0, int)
    decision, note = await gather(signal("decided", type=Decision), signal("noted", type=Note))
    assert_type(decision, Decision)
    assert_type(await race(signal("decided", type=Decision), sleep("7d")), Decision | None)
    asked = await request("quote", type=Order)
    assert_type(asked, Request[Order])
    assert_type(asked.payload, Order)
    asked.reply(Receipt(1))
    assert_type((await request("any", "1h")).payload, Any)
    async for each in requests("quote", type=Note):
        assert_type(each.payload, Note)
        break
    answer = await approval("pay?", form=Order)
    assert_type(answer.data, Order)
    return note.text


@app.workflow
async def shadows(signal: str, sleep: int, gather: bool) -> int:
    await ds.sleep(sleep)
    await pause(timedelta(hours=1))
    assert_type(await ds.signal(signal, type=Decision), Decision)
    assert_type(await ds.gather(count("a"), charge(Order(1))), tuple[int, Receipt])
    assert_type(await ds.first(count("a"), count("b")), int)
    assert_type(await ds.race(count("a"), count("b")), int)
    assert_type(await ds.run(checkout, Order(1)), Receipt)
    assert_type(ds.start(checkout, Order(1)), str)
    with ds.timeout("5m") as limit:
        await ds.sleep(1)
    return int(limit.expired())


# -- outside ---------------------------------------------------------------------------------------------------------


def starts() -> None:
    handle = app.start(checkout, Order(1), note="x")
    assert_type(handle, Handle[Receipt])
    assert_type(handle.result(timeout="5m").number, int)
    assert_type(handle.ask("price", Order(1), returns=Receipt, timeout="5m"), Receipt)
    assert_type(handle.ask("price"), Any)
    assert_type(app.start(report, 7), Handle[list[str]])
    assert_type(app.start(silent), Handle[None])
    assert_type(app.start(charge, Order(1), currency="CHF"), Handle[Receipt])
    assert_type(app.start(shrink), Handle[bytes])
    assert_type(app.start("checkout", {"id": 1}), Handle[Any])
    assert_type(app.start("checkout@stable", id=1).result(), Any)
    options = app.with_options(idempotency_key="o-1", tags={"a": "b"}, version=3, priority=5, delay="1h")
    assert_type(options.start(checkout, order=Order(1)), Handle[Receipt])
    assert_type(options.start("checkout", id=1), Handle[Any])
    assert_type(options.submit(checkout, Order(1)), Handle[Receipt])
    assert_type(app.submit(report, days=7).result(), list[str])
    assert_type(app.submit("report", 7), Handle[Any])
    assert_type(app.handle("0123"), Handle[Any])
    assert_type(app.executions("checkout"), list[Handle[Any]])
    assert_type(handle.retry(), Handle[Receipt])
    assert_type(app.schedules.trigger("nightly"), Handle[Any])
    whatever: Handle = handle
    wider: Handle[object] = handle
    assert_type(len([whatever, wider]), int)


async def twins() -> None:
    handle = await app.astart(checkout, Order(1), note="x")
    assert_type(handle, Handle[Receipt])
    assert_type(await handle.aresult(), Receipt)
    assert_type(await handle.aask("price", Order(1), returns=Receipt), Receipt)
    assert_type(await app.astart("checkout", {"id": 1}), Handle[Any])
    assert_type(await app.asubmit(checkout, Order(1)), Handle[Receipt])
    assert_type(await app.with_options(delay=5).astart(report, 7), Handle[list[str]])
    async with app.running():
        assert_type(await checkout(Order(1)), Receipt)
    assert_type(await checkout.function(Order(1)), Receipt)
    assert_type(await charge(Order(1)), Receipt)


def kit() -> None:
    with TestKit(app) as workflows:
        handle = workflows.start(checkout, Order(1), note="x")
        assert_type(handle, Handle[Receipt])
        workflows.signal(handle, "approved", {"by": "ann"})
        assert_type(workflows.run(checkout, Order(1)), Receipt)
        assert_type(workflows.run(charge, Order(1)), Receipt)
        assert_type(workflows.run("flows/checkout.flow", {"id": 1}), Any)
        assert_type(workflows.start({"name": "g", "nodes": []}), Handle[Any])


async def async_kit() -> None:
    async with TestKit(app) as workflows:
        assert_type(await workflows.astart(report, 7), Handle[list[str]])
        assert_type(await workflows.arun(report, days=7), list[str])
