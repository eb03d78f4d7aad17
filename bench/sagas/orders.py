"""The workflow of the saga soak, and its tasks: they ask a provider over HTTP, which PROVIDER names."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import httpx

from dalsegno import App, EngineSettings, NodeContext, RetryPolicy, sleep

app = App(settings=EngineSettings(lease_seconds=float(os.environ.get("LEASE", "60"))))
LONG = RetryPolicy(max_attempts=1000, initial_delay=0.2, max_delay=1.0)
SHORT = RetryPolicy(max_attempts=4, initial_delay=0.2, max_delay=1.0)
"""Gives up long before the provider is well again."""
PROVIDER = os.environ.get("PROVIDER", "http://127.0.0.1:1")


async def ask(ctx: NodeContext, what: str, order: str) -> dict[str, Any]:
    """The provider does a thing once per key, and again tells what it has done."""
    async with httpx.AsyncClient(timeout=10) as http:
        reply = await http.post(
            f"{PROVIDER}/{what}/{order}", headers={"Idempotency-Key": ctx.idempotency_key}
        )
    reply.raise_for_status()
    return {"order": order, "key": ctx.idempotency_key}


@app.task(retries=LONG)
async def charge(ctx: NodeContext, order: str) -> dict[str, Any]:
    return await ask(ctx, "charge", order)


@app.task(retries=SHORT)
async def refund(ctx: NodeContext, receipt: dict[str, Any]) -> dict[str, Any]:
    return await ask(ctx, "refund", receipt["order"])


@app.task(retries=LONG)
async def ship(ctx: NodeContext, order: str) -> dict[str, Any]:
    return await ask(ctx, "ship", order)


@app.workflow
async def buy(order: str, patience: float) -> str:
    async def settled(call: Any) -> Any:
        try:
            return await call
        except asyncio.CancelledError:
            return await call

    charging = charge(order)
    try:
        await charging
        await sleep(patience)
        await ship(order)
        return order
    except (Exception, asyncio.CancelledError):
        await settled(refund(await settled(charging)))
        raise


@app.workflow(timeout="4s", cancel_grace="6s")
async def buy_soon(order: str, patience: float) -> str:
    """As the other one, but late ones are undone, and nobody waits for ever for that."""

    async def settled(call: Any) -> Any:
        try:
            return await call
        except asyncio.CancelledError:
            return await call

    charging = charge(order)
    try:
        await charging
        await sleep(patience)
        await ship(order)
        return order
    except (Exception, asyncio.CancelledError):
        await settled(refund(await settled(charging)))
        raise
