"""A payment provider for this example, as a real server with a ledger in memory.

    uvicorn back_office.provider:provider --port 8900

It does each thing once per idempotency key. Cards that begin with 4000 are declined at once; for those that begin with
5000 the bank does not pay. What the bank says comes later, as a signed notification (https://www.standardwebhooks.com)
that is repeated until it is acknowledged. `POST /trouble/5` makes the provider fail for five seconds: it refuses half
of the requests, and processes the other half but loses the reply.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import time
from dataclasses import asdict, dataclass
from itertools import count
from typing import Annotated, Any

import httpx
from fastapi import FastAPI, Header, HTTPException
from pydantic import BaseModel

SECRET = os.environ.get("PAYMENTS_SECRET", "whsec_dGhlIHNlY3JldCBvZiB0aGUgZXhhbXBsZQ==")
BANK_SECONDS = float(os.environ.get("BANK_SECONDS", "0.3"))

provider = FastAPI(title="Payments")


@dataclass
class Entry:
    kind: str
    key: str
    reference: str
    cents: int


class Charge(BaseModel):
    reference: str
    cents: int
    card: str
    notify: str
    metadata: dict[str, str]


class Refund(BaseModel):
    reference: str


class Ledger:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.answers: dict[str, dict[str, Any]] = {}
        """By idempotency key."""
        self.closed: set[str] = set()
        """References that were refunded: nothing is charged for them any more."""
        self.trouble_until = 0.0
        self.requests = count()

    def charge(self, asked: Charge, key: str) -> dict[str, Any]:
        if asked.reference in self.closed or asked.card.startswith("4000"):
            raise HTTPException(422, "declined")
        self.entries.append(Entry("charge", key, asked.reference, asked.cents))
        return {"id": key, "status": "pending"}

    def refund(self, asked: Refund, key: str) -> dict[str, Any]:
        self.closed.add(asked.reference)
        mine = [entry for entry in self.entries if entry.reference == asked.reference]
        cents = sum(entry.cents if entry.kind == "charge" else -entry.cents for entry in mine)
        if cents:
            self.entries.append(Entry("refund", key, asked.reference, cents))
        return {"id": key, "cents": cents}


ledger = Ledger()
http = httpx.AsyncClient()
sending: set[asyncio.Task[None]] = set()
Key = Annotated[str, Header(alias="Idempotency-Key")]


@provider.post("/charges", status_code=201)
async def charge(asked: Charge, key: Key) -> dict[str, Any]:
    lost = trouble()
    if key not in ledger.answers:
        ledger.answers[key] = ledger.charge(asked, key)
        status = "failed" if asked.card.startswith("5000") else "paid"
        notice = {"id": key, "reference": asked.reference, "status": status, "metadata": asked.metadata}
        task = asyncio.create_task(notify(asked.notify, notice))
        sending.add(task)
        task.add_done_callback(sending.discard)
    return answer(key, lost)


@provider.post("/refunds", status_code=201)
async def refund(asked: Refund, key: Key) -> dict[str, Any]:
    lost = trouble()
    if key not in ledger.answers:
        ledger.answers[key] = ledger.refund(asked, key)
    return answer(key, lost)


@provider.get("/ledger")
async def look() -> list[dict[str, Any]]:
    return [asdict(entry) for entry in ledger.entries]


@provider.post("/trouble/{seconds}", status_code=204)
async def begin_trouble(seconds: float) -> None:
    ledger.trouble_until = time.monotonic() + seconds


def trouble() -> bool:
    """Whether the answer to this request gets lost."""
    if time.monotonic() > ledger.trouble_until:
        return False
    if next(ledger.requests) % 2:
        raise HTTPException(503, "out of order")
    return True


def answer(key: str, lost: bool) -> dict[str, Any]:
    if lost:
        raise HTTPException(502, "the answer got lost")
    return ledger.answers[key]


async def notify(url: str, notice: dict[str, Any]) -> None:
    await asyncio.sleep(BANK_SECONDS)
    body = json.dumps(notice).encode()
    while True:
        try:
            reply = await http.post(url, content=body, headers=signed(notice["id"], body))
            if reply.is_success:
                return
        except httpx.HTTPError:
            pass  # the receiver is down; it is sent again
        await asyncio.sleep(0.5)


def signed(delivery: str, body: bytes) -> dict[str, str]:
    """With the time, so that it cannot be replayed tomorrow."""
    now = str(int(time.time()))
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    signature = hmac.digest(key, b".".join([delivery.encode(), now.encode(), body]), hashlib.sha256)
    return {
        "Content-Type": "application/json",
        "webhook-id": delivery,
        "webhook-timestamp": now,
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }
