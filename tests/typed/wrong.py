"""Mistakes that type checkers find. Behind a line stands what they say of it: mypy's code; pyright's rules.

This module is for reading: it cannot be imported.
"""

# pyright: standard

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import dalsegno as ds
from dalsegno import App, Client, Handle, TaskContext, first, gather, race, request, run, signal, sleep, start
from dalsegno.testing import TestKit

app = App("memory:")
client = Client("http://127.0.0.1:8700")
kit = TestKit(app)


@dataclass
class Order:
    id: int


@app.task(retries=3)
async def charge(order: Order, *, currency: str = "EUR") -> int:
    return order.id


@app.task
def store(ctx: TaskContext, name: str) -> bool:
    return bool(name)


@app.workflow(timeout="7d")
async def checkout(order: Order, note: str = "") -> str:
    return note


# -- decorators


@app.workflow  # arg-type; ArgumentType
def plain(order: Order) -> str:
    return ""


@app.workflow(timeout=[1])  # call-overload, untyped-decorator; ArgumentType
async def bad_option(order: Order) -> str:
    return ""


@app.task(retires=3)  # call-overload, untyped-decorator; CallIssue
async def misspelt(order: Order) -> str:
    return ""


# -- starts


def starts() -> None:
    app.start(checkout)  # call-overload; CallIssue
    app.start(checkout, 5)  # call-overload; ArgumentType, CallIssue
    app.start(checkout, Order(1), 5)  # call-overload; ArgumentType, CallIssue
    app.start(checkout, Order(1), notes="x")  # call-arg; CallIssue
    app.start(checkout, Order(1), note=5)  # arg-type; ArgumentType, CallIssue
    app.start(checkout, Order(1), "x", "y")  # call-overload; CallIssue
    app.start(charge, "order")  # call-overload; ArgumentType, CallIssue
    app.start(store, TaskContext, "name")  # call-overload; CallIssue
    app.start(len, "text")  # call-overload; ArgumentType, CallIssue
    app.start(checkout(Order(1)))  # call-overload; ArgumentType, CallIssue
    app.start(5)  # call-overload; ArgumentType, CallIssue
    app.start("checkout").result(timeout=[])  # arg-type; ArgumentType
    app.with_options(delay="1h").start(checkout, 5)  # call-overload; ArgumentType, CallIssue
    app.with_options(dely="1h").start(checkout, Order(1))  # call-arg; CallIssue
    app.submit(checkout, 5)  # call-overload; ArgumentType, CallIssue
    app.submit(charge, Order(1))  # call-overload; ArgumentType, CallIssue
    client.start(checkout, 5)  # call-overload; ArgumentType, CallIssue
    client.start(charge, Order(1))  # call-overload; ArgumentType, CallIssue
    client.with_options(priority=1).submit(checkout, note="x")  # call-overload; CallIssue
    kit.start(checkout, 5)  # call-overload; ArgumentType, CallIssue
    kit.run(checkout, 5)  # call-overload; ArgumentType, CallIssue
    kit.run(charge, Order(1), 5)  # call-overload; CallIssue
    kit.run(5)  # call-overload; ArgumentType, CallIssue

    handle = app.start(checkout, Order(1))
    number: int = handle.result()  # assignment; AssignmentType
    handle.result().years  # attr-defined; AttributeAccessIssue
    other: Handle[int] = handle  # assignment; AssignmentType
    again: Handle[int] = handle.retry()  # assignment; AssignmentType
    text: int = kit.run(checkout, Order(1))  # assignment; AssignmentType


async def twins() -> None:
    await app.astart(checkout, 5)  # call-overload; ArgumentType, CallIssue
    await app.with_options(delay="1h").asubmit(checkout, 5)  # call-overload; ArgumentType, CallIssue
    await kit.arun(checkout, 5)  # call-overload; ArgumentType, CallIssue
    await client.astart(checkout, 5)  # call-overload; ArgumentType, CallIssue
    number: int = await (await app.astart(checkout, Order(1))).aresult()  # assignment; AssignmentType
    app.astart(checkout, Order(1)).aresult()  # attr-defined; AttributeAccessIssue
    asyncio.run(checkout.function(5))  # arg-type; ArgumentType


# -- in workflows


@app.workflow
async def calls(order: Order) -> int:
    await charge()  # call-arg; CallIssue
    await charge(5)  # arg-type; ArgumentType
    await charge(order, "CHF")  # call-arg; CallIssue
    await charge(order, currency=5)  # arg-type; ArgumentType
    await charge.with_options(queue="fast")(5)  # arg-type; ArgumentType
    await store(TaskContext, "name")  # arg-type, call-arg; CallIssue
    await checkout(5)  # arg-type; ArgumentType
    await checkout(order, notes="x")  # call-arg; CallIssue
    await run(checkout, 5)  # call-overload; ArgumentType, CallIssue
    await run(5)  # call-overload; ArgumentType, CallIssue
    start(checkout, 5)  # call-overload; ArgumentType, CallIssue
    start(charge, order)  # call-overload; ArgumentType, CallIssue
    number: int = await checkout(order)  # assignment; AssignmentType
    total: int = charge(order)  # assignment; AssignmentType
    await charge(order).named(1)  # arg-type; ArgumentType
    await charge(order).called("x")  # attr-defined; AttributeAccessIssue
    charge(order) + 1  # operator; OperatorIssue
    return await checkout(order)  # return-value; ReturnType


@app.workflow
async def joins(order: Order) -> None:
    await gather(1, 2)  # call-overload; ArgumentType, CallIssue
    await gather([charge(order)])  # call-overload; ArgumentType, CallIssue
    await gather(charge(order), limit="2")  # call-overload; ArgumentType, CallIssue
    one, two, three = await gather(charge(order), checkout(order))  # misc; AssignmentType
    text: str = (await gather(charge(order), checkout(order)))[0]  # assignment; AssignmentType
    texts: list[str] = await gather(*[charge(order) for _ in range(3)])  # assignment; AssignmentType
    await first(1, 2)  # call-overload; ArgumentType, CallIssue
    word: str = await first(charge(order), charge(order))  # arg-type; AssignmentType
    await race(5)  # call-overload; ArgumentType
    word = await race(charge(order), checkout(order))  # arg-type; AssignmentType
    await race(paid=5)  # call-overload; ArgumentType
    await sleep([])  # arg-type; ArgumentType
    await ds.sleep([])  # arg-type; ArgumentType
    await ds.slep(1)  # attr-defined; AttributeAccessIssue
    await ds.gather(5)  # call-overload; ArgumentType, CallIssue


@app.workflow
async def signals(order: Order) -> None:
    await signal(5)  # call-overload; ArgumentType
    await signal("go", timeout=[])  # call-overload; ArgumentType
    await signal("go", type=5)  # call-overload; ArgumentType, CallIssue
    await signal("go", type="Order")  # call-overload; ArgumentType, CallIssue
    wrong: str = await signal("go", type=Order)  # arg-type; AssignmentType
    (await signal("go", type=Order)).nonsense  # attr-defined; AttributeAccessIssue
    order = signal("go", type=Order)  # assignment; AssignmentType
    await signal("go", kind=Order)  # call-overload; CallIssue


@app.workflow
async def answers(order: Order) -> None:
    await request(5)  # call-overload; ArgumentType
    (await request("quote", type=Order)).payload.nonsense  # attr-defined; AttributeAccessIssue
    text: str = (await request("quote", type=Order)).payload  # assignment; AssignmentType
    (await request("quote")).reject(5)  # arg-type; ArgumentType


def asks(handle: Handle[int]) -> None:
    number: int = handle.ask("quote", returns=str)  # assignment; AssignmentType
    handle.ask(5)  # call-overload; ArgumentType
