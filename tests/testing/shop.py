"""A user's module, as it is: an application on a store of its own, with tasks and workflows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dalsegno import App, RetryPolicy, gather, race, signal, sleep, timeout

app = App("sqlite:///a-store-that-no-test-may-touch.db")


@dataclass
class Order:
    id: int
    cents: int


@app.task
async def charge(order: Order) -> str:
    raise ConnectionError("the real thing is out of reach")


@app.task(retries=RetryPolicy(max_attempts=5, initial_delay=60, factor=2, jitter=0))
async def ship(order_id: int, fast: bool = False) -> str:
    raise ConnectionError("the real thing is out of reach")


@app.task
def count_words(text: str) -> int:
    return len(text.split())


@app.workflow
async def checkout(order: Order) -> dict[str, Any]:
    receipt = await charge(order)
    await sleep("7d")
    parcel = await ship(order.id, fast=True)
    return {"receipt": receipt, "parcel": parcel}


@app.workflow
async def approval(name: str) -> str:
    try:
        decision = await signal("decision", timeout="3d")
    except TimeoutError:
        return f"{name}: nobody decided"
    return f"{name}: {decision['by']} said {decision['answer']}"


@app.workflow
async def count_all(texts: list[str]) -> int:
    return sum(await gather(*[count_words(text) for text in texts]))


@app.workflow(timeout="1h")
async def impatient() -> str:
    await signal("never")
    return "it came"


@app.workflow
async def limited() -> str:
    try:
        async with timeout("10m"):
            await signal("never")
    except TimeoutError:
        return "gave up"
    return "it came"


@app.workflow
async def first_of_two() -> str:
    async def after(delay: str) -> str:
        await sleep(delay)
        return delay

    await race(sleep("2d"), sleep("1d"))
    return await after("1h")


def place_order(order: Order) -> str:
    """Code of the user's program that starts a workflow, as a web handler would."""
    return app.start(checkout, order).id
