"""An order as a saga: reserve, charge, ship. When a step fails, or somebody cancels the order, what was done before is
undone, the newest first.

    dalsegno run examples/saga/order.py:place_order --input '{"sku": "A-1", "count": 2, "address": "12 Mill Lane"}'
    dalsegno run examples/saga/order.py:place_order --input '{"sku": "A-1", "count": 2, "address": ""}'

The second order cannot be shipped, so its payment is refunded and its goods are released. Kill either run at any
moment: `dalsegno resume last --app examples/saga/order.py` goes on from there. The same workflow as a script is
order.flow, as a graph order.yaml; both use the tasks of this file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypedDict

from dalsegno import App, TaskContext

app = App()


@dataclass(frozen=True)
class Order:
    sku: str
    count: int
    address: str


class Receipt(TypedDict):
    id: str


class CannotShip(Exception):
    """Nobody can bring it there."""


@app.task(retries=3)
async def reserve(ctx: TaskContext, order: Order) -> Receipt:
    ctx.log(f"{order.count} × {order.sku} reserved")
    return {"id": f"reservation-{order.sku}"}


@app.task(retries=10)
async def release(ctx: TaskContext, receipt: Receipt) -> None:
    ctx.log(f"{receipt['id']} released")


@app.task(retries=3)
async def charge(ctx: TaskContext, order: Order) -> Receipt:
    """A real one would give ``ctx.idempotency_key`` to the bank: it stays the same if the task runs twice."""
    ctx.log(f"{order.count * 250} cents charged")
    return {"id": f"payment-{order.sku}"}


@app.task(retries=10)
async def refund(ctx: TaskContext, receipt: Receipt) -> None:
    ctx.log(f"{receipt['id']} refunded")


@app.task
async def ship(ctx: TaskContext, order: Order) -> Receipt:
    if not order.address:
        raise CannotShip("there is no address to ship to")
    ctx.log(f"shipped to {order.address}")
    return {"id": f"parcel-{order.sku}"}


@app.workflow
async def place_order(order: Order) -> dict[str, str]:
    async def settled(call: Awaitable[Any]) -> Any:
        """What a call comes to, also if the order is cancelled meanwhile: a workflow is told that once."""
        try:
            return await call
        except asyncio.CancelledError:
            return await call

    undo: list[tuple[Callable[[Receipt], Awaitable[None]], Awaitable[Receipt]]] = []
    try:
        reserving = reserve(order)  # asked for; how to undo it is noted before anything can interrupt
        undo.append((release, reserving))
        await reserving
        charging = charge(order)
        undo.append((refund, charging))
        await charging
        parcel = await ship(order)
        return {"status": "shipped", "parcel": parcel["id"]}
    except (Exception, asyncio.CancelledError) as problem:  # whatever it was, and whichever step
        for step, asked in reversed(undo):
            try:
                receipt = await settled(asked)  # a step that still runs comes to its end first
            except Exception:  # noqa: BLE001 - it did nothing that could be undone
                continue
            await settled(step(receipt))
        if isinstance(problem, asyncio.CancelledError):
            raise
        return {"status": "undone", "reason": str(problem)}
