"""What comes to a webhook: checked, read, and made the start of a workflow."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Raw

from dalsegno.core.json_fields import read_delivery
from dalsegno.engine.offload import Offload, Requester, requester
from dalsegno.engine.starting import StartOptions
from dalsegno.engine.webhook_signatures import Proof, verify
from dalsegno.engine.webhooks import ALWAYS_PASSED, UNCHECKABLE, Webhook, WebhookBook
from dalsegno.errors import (
    BadRequest,
    SignatureRefused,
    StaleDelivery,
    TooLarge,
    Unavailable,
    UnsupportedMedia,
)
from dalsegno.job_process import value_of
from dalsegno.model.execution import ExecutionView
from dalsegno.server.access import NOBODY
from dalsegno.server.json_request import INLINE_BYTES
from dalsegno.server.large_values import whole
from dalsegno.server.office import Office

logger = logging.getLogger("dalsegno.server")

FORM = "application/x-www-form-urlencoded"
LONGEST_ID = 500
MOST_FIELDS = 1000
_NAMES = tuple(bytes((each,)) for each in b'"-0123456789')
"""How JSON begins that may be the id of a delivery."""


@dataclass(frozen=True, slots=True)
class Delivery:
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes
    address: str


@dataclass(frozen=True, slots=True)
class Taken:
    execution: str
    is_repeat: bool


def book_of(office: Office) -> WebhookBook:
    return WebhookBook(office.client.stack.records, office.engine.vault)


async def take(office: Office, webhook: Webhook, delivery: Delivery) -> Taken:
    """Starts the workflow, once for each delivery. Nothing has happened where this raises."""
    if len(delivery.body) > webhook.body_bytes:
        raise TooLarge(f"the body is larger than the {webhook.body_bytes:,} bytes that this webhook takes")
    requester.set(Requester(f"webhook:{webhook.id}"))
    proof = await _verified(office, webhook, delivery)
    office.reception.spend(webhook, time.monotonic())
    body = await _body(delivery, office.client.offload)
    key = _key(webhook, delivery, body, proof)
    tags = {**webhook.tags, "webhook": webhook.id}
    options = StartOptions(None, key, tags)
    program = await office.client.named_program(webhook.workflow, options)
    started = await office.client.launcher.start(program, _payload(webhook, delivery, body), options)
    return Taken(started.execution, is_repeat=not started.is_new)


async def _verified(office: Office, webhook: Webhook, delivery: Delivery) -> Proof:
    secret = await _secret(office, webhook)
    now = office.client.stack.clock.now()
    try:
        return verify(webhook.signature, secret, delivery.headers, delivery.body, now)
    except (SignatureRefused, StaleDelivery):
        office.reception.forged(delivery.address, time.monotonic())
        raise


async def _secret(office: Office, webhook: Webhook) -> str:
    """What keeps it from being read is for those who run the server, not for whoever knows the path."""
    try:
        secret = await book_of(office).secret(webhook)
    except UNCHECKABLE as error:
        office.reception.unchecked[webhook.id] = str(error)
        logger.error("deliveries to the webhook '%s' cannot be checked: %s", webhook.id, error)
        raise Unavailable("deliveries cannot be taken at the moment; send it again later") from None
    office.reception.unchecked.pop(webhook.id, None)
    return secret


def _key(webhook: Webhook, delivery: Delivery, body: Any, proof: Proof) -> str | None:
    """What makes two deliveries one; None where every one counts."""
    named = _field(body, webhook.delivery_field) if webhook.delivery_field else ""
    named = named or (delivery.headers.get(webhook.delivery_header, "") if webhook.delivery_header else "")
    found = f"id:{named}" if named else f"id:{proof.id}" if proof.id else f"signature:{proof.signature}"
    if not named and not proof.id and not proof.signature:
        return None
    return f"webhook:{webhook.id}:{hashlib.sha256(found.encode(errors='replace')).hexdigest()}"


def _field(body: Any, path: str) -> str:
    """Of a JSON body only what leads there is read."""
    for part in path.split("."):
        if isinstance(body, Raw):
            body = _members(body)
        body = body.get(part) if isinstance(body, dict) else None
    if isinstance(body, Raw):
        body = _scalar(body) if bytes(body)[:1] in _NAMES else None
    return str(body)[:LONGEST_ID] if isinstance(body, str | int) and not isinstance(body, bool) else ""


def _scalar(body: Raw) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.ValidationError:  # a number that nothing can hold
        return bytes(body)[:LONGEST_ID].decode()


def _members(body: Raw) -> dict[str, Raw] | None:
    try:
        return msgspec.json.decode(body, type=dict[str, Raw])
    except msgspec.ValidationError:
        return None


# -- what the workflow gets -----------------------------------------------------------------------------------


def _payload(webhook: Webhook, delivery: Delivery, body: Any) -> Raw:
    passed = (*ALWAYS_PASSED, *webhook.headers)
    told = {
        "body": body,
        "query": _fields(delivery.query),
        "headers": {name: delivery.headers[name] for name in passed if name in delivery.headers},
        "method": delivery.method,
        "path": delivery.path,
    }
    return Raw(msgspec.json.encode(told))


async def _body(delivery: Delivery, offload: Offload) -> Any:
    """JSON stays JSON, and a large one is read in a process."""
    media = delivery.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not delivery.body:
        return None
    if media == "application/json" or media.endswith("+json"):
        if len(delivery.body) <= INLINE_BYTES:
            return Raw(read_delivery(delivery.body))
        return Raw(value_of(await offload.large("delivery", delivery.body)))
    if media == FORM:
        return _fields(_text(delivery.body))
    if media.startswith("text/") or not media:
        return _text(delivery.body)
    raise UnsupportedMedia(f"a webhook takes JSON, forms and text, not {media[:100]!r}")


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise BadRequest("the body is not valid UTF-8") from None


def _fields(text: str) -> dict[str, Any]:
    """A name that comes several times has a list."""
    found: dict[str, Any] = {}
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise BadRequest(f"more than {MOST_FIELDS} fields in a form or query") from None
    for name, value in pairs:
        before = found.get(name)
        if name not in found:
            found[name] = value
        else:
            found[name] = [*before, value] if isinstance(before, list) else [before, value]
    return found


# -- what the sender gets -------------------------------------------------------------------------------------


async def result_of(office: Office, execution: str, seconds: float) -> ExecutionView:
    """As soon as it has ended, or as it stands when the time is over or the server stops."""
    ending = asyncio.ensure_future(office.client.endings.over(execution))
    closing = asyncio.ensure_future(office.closing.wait())
    try:
        # Where too many calls wait already this one is answered as it stands.
        with contextlib.suppress(Unavailable), office.usage.waiting(NOBODY):
            await asyncio.wait((ending, closing), timeout=seconds, return_when="FIRST_COMPLETED")
        if ending.done():
            ending.result()
    finally:
        ending.cancel()
        closing.cancel()
    return await whole(office, execution)
