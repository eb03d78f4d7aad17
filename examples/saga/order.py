"""An order as a saga: reserve, charge, ship. When a step fails, or the order is cancelled, the completed steps are
undone, the newest first.

    dalsegno run examples/saga/order.py:place_order --input '{"sku": "A-1", "count": 2, "address": "12 Mill Lane"}'
    dalsegno run examples/saga/order.py:place_order --input '{"sku": "A-1", "count": 2, "address": ""}'

The second order cannot be shipped, so its payment is refunded and its goods are released. Kill either run at any
moment: `dalsegno resume last --app examples/saga/order.py` resumes it. The same workflow as a script is
order.flow, as a graph order.yaml; both use the tasks of this file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypedDict

from dalsegno import App, NodeContext, log

app = App()


@dataclass(frozen=True)
class Order:
    sku: str
    count: int
    address: str


class Parcel(TypedDict):
    id: str


class CannotShip(Exception):
    """Nobody can bring it there."""


@app.task(retries=3)
async def reserve(ctx: NodeContext, order: Order) -> None:
    ctx.log(f"{order.count} × {order.sku} reserved")


@app.task(retries=10)
async def release(ctx: NodeContext, order: Order) -> None:
    """Whatever is reserved for the order, if anything is."""
    ctx.log(f"reservation-{order.sku} released")


@app.task(retries=3)
async def charge(ctx: NodeContext, order: Order) -> None:
    """A real one would give ``ctx.idempotency_key`` to the bank: it stays the same if the task runs twice."""
    ctx.log(f"{order.count * 250} cents charged")


@app.task(retries=10)
async def refund(ctx: NodeContext, order: Order) -> None:
    """Whatever the bank has booked for the order, if anything: a charge that failed may have been booked, too, if only
    the bank's answer was lost."""
    ctx.log(f"payment-{order.sku} refunded")


@app.task
async def ship(ctx: NodeContext, order: Order) -> Parcel:
    if not order.address:
        raise CannotShip("there is no address to ship to")
    ctx.log(f"shipped to {order.address}")
    return {"id": f"parcel-{order.sku}"}


@app.workflow
async def place_order(order: Order) -> dict[str, str]:
    async def settled(call: Awaitable[Any]) -> Any:
        """Waits for a call to its end, even if the order is cancelled meanwhile: the error is raised only once."""
        try:
            return await call
        except asyncio.CancelledError:
            return await call

    begun: list[tuple[Awaitable[None], Callable[[Order], Awaitable[None]]]] = []
    try:
        reserving = reserve(order)  # asked for; how to undo it is noted before anything can interrupt
        begun.append((reserving, release))
        await reserving
        charging = charge(order)
        begun.append((charging, refund))
        await charging
        parcel = await settled(ship(order))  # goods that are on their way are not refunded
        return {"status": "shipped", "parcel": parcel["id"]}
    except (Exception, asyncio.CancelledError) as problem:  # whatever it was, and whichever step
        for asked, undo in reversed(begun):
            try:
                await settled(asked)  # a step that still runs comes to its end first
            except Exception as failure:  # noqa: BLE001 - it may have had its effect all the same
                log(f"a step failed and is undone: {failure}")
            await settled(undo(order))
        if isinstance(problem, asyncio.CancelledError):
            raise
        return {"status": "undone", "reason": str(problem)}
