"""Tasks and workflows without an application: signatures survive, and wrong calls are found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

from dalsegno import App
from dalsegno.lang.python import (
    DurableTask,
    DurableWorkflow,
    first,
    gather,
    race,
    signal,
    sleep,
    start,
    timeout,
)


@dataclass
class Receipt:
    number: int


@DurableTask
async def charge(order: str, amount: int = 1) -> Receipt:
    return Receipt(len(order) + amount)


@DurableTask
async def count(order: str) -> int:
    return len(order)


@DurableWorkflow
async def checkout(order: str) -> int:
    receipt = await charge(order, amount=3)
    assert_type(receipt, Receipt)
    pair = await gather(charge(order), count(order))
    assert_type(pair, tuple[Receipt, int])
    many = await gather(*[count(each) for each in "abc"])
    assert_type(many, list[int])
    either = await gather(count(order), count(order), return_exceptions=True)
    assert_type(either, tuple[int | BaseException, int | BaseException])
    assert_type(await first(count("a"), count("b")), int)
    assert_type(await race(count("a"), count("b")), int)
    assert_type(await signal("go"), Any)
    await sleep("1h")
    with timeout(5) as limit:
        await sleep(1)
    async with timeout(None):
        pass
    assert_type(limit.expired(), bool)
    assert_type(start(checkout, order), str)
    return pair[1]


@DurableWorkflow
async def parent(order: str) -> int:
    assert_type(await checkout(order), int)
    return await checkout.with_options(queue="slow")(order)


@DurableWorkflow
async def wrong(order: str) -> int:
    await charge(5)  # type: ignore[arg-type]
    await charge()  # type: ignore[call-arg]
    await sleep([])  # type: ignore[arg-type]
    return await charge(order)  # type: ignore[return-value]


app = App("memory:")
certificate = app.remote_task("certificate", queue="office", returns=Receipt)
anything = app.remote_task("anything", queue="office")


@app.workflow
async def certify(order: str) -> int:
    assert_type(await certificate(order), Receipt)
    assert_type(await anything(order=order), Any)
    return (await certificate(order)).number
