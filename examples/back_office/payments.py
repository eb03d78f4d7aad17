"""Money: charges and refunds at the payment provider, and the notifications that it sends."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, TypedDict

import httpx

from back_office.office import PATIENT, app
from dalsegno import Conflict, NodeContext, RetryPolicy

PROVIDER = os.environ.get("PROVIDER", "http://127.0.0.1:8900")
NOTIFY = os.environ.get("NOTIFY", "http://127.0.0.1:8700/v1/hooks/payments")

BRIEFLY_DOWN = RetryPolicy(max_attempts=8, initial_delay=0.5, max_delay=30)
DECLINED = 422

provider = httpx.Client(base_url=PROVIDER)


class Notice(TypedDict):
    """What the provider tells about a charge."""

    id: str
    reference: str
    status: str
    metadata: dict[str, str]


@app.task(retries=BRIEFLY_DOWN)
def charge(ctx: NodeContext, reference: str, cents: int, card: str) -> bool:
    """Asks for money; false if the card is no good. A notification tells later whether the bank has paid.

    The provider does a thing once per key, and the key is the same for every attempt."""
    asked = {
        "reference": reference,
        "cents": cents,
        "card": card,
        "notify": NOTIFY,
        "metadata": {"execution": ctx.execution_id},
    }
    reply = ask_provider("/charges", asked, ctx.idempotency_key)
    return reply.status_code != DECLINED


@app.task(retries=PATIENT)
def refund(ctx: NodeContext, reference: str) -> int:
    """Gives back what was charged under this reference, if anything was, and says how much. Afterwards the provider
    accepts no charge for it: one that is still under way comes to nothing."""
    reply = ask_provider("/refunds", {"reference": reference}, ctx.idempotency_key)
    cents: int = reply.json()["cents"]
    return cents


def ask_provider(path: str, body: dict[str, Any], key: str) -> httpx.Response:
    reply = provider.post(path, json=body, headers={"Idempotency-Key": key})
    if reply.status_code != DECLINED:
        reply.raise_for_status()
    return reply


@app.workflow
async def payment_notice(delivery: dict[str, Any]) -> None:
    """Started by the webhook, once for each notification, however often the provider sends it."""
    await pass_on(delivery["body"])


@app.task(retries=PATIENT)
async def pass_on(notice: Notice) -> None:
    enrolment = app.handle(notice["metadata"]["execution"])
    with suppress(Conflict):  # it has ended and refunded the money: nothing waits for the bank any more
        await enrolment.asignal("payment", notice["status"], id=notice["id"])
