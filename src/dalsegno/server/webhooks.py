"""Deliveries of webhooks: they are checked, decoded, and start a workflow."""

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

from dalsegno.admin.webhook_signatures import Proof, verify
from dalsegno.admin.webhooks import ALWAYS_PASSED, UNCHECKABLE, Webhook, WebhookRecords
from dalsegno.core.json_fields import read_delivery
from dalsegno.engine.starting.start import StartOptions
from dalsegno.engine.subprocesses.examination import value_of
from dalsegno.engine.subprocesses.job_pool import Offload, Requester, requester
from dalsegno.errors import (
    BadRequest,
    SignatureRefused,
    StaleDelivery,
    TooLarge,
    Unavailable,
    UnsupportedMedia,
)
from dalsegno.model.execution import ExecutionView
from dalsegno.server.auth.authentication import NOBODY
from dalsegno.server.http.responses import whole
from dalsegno.server.http.routing import INLINE_BYTES
from dalsegno.server.services import ServerServices

logger = logging.getLogger("dalsegno.server")

FORM = "application/x-www-form-urlencoded"
LONGEST_ID = 500
MOST_FIELDS = 1000
_NAMES = tuple(bytes((each,)) for each in b'"-0123456789')
"""First bytes of JSON values that may be the id of a delivery."""


@dataclass(frozen=True, slots=True)
class Delivery:
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    """Headers by lower-case name."""
    body: bytes
    address: str


@dataclass(frozen=True, slots=True)
class Taken:
    execution: str
    is_repeat: bool


def webhooks_of(services: ServerServices) -> WebhookRecords:
    return WebhookRecords(services.client.stack.records, services.engine.vault)


async def take(services: ServerServices, webhook: Webhook, delivery: Delivery) -> Taken:
    """Start the workflow, once for each delivery. If this raises, nothing was started."""
    if len(delivery.body) > webhook.body_bytes:
        raise TooLarge(f"the body is larger than the {webhook.body_bytes:,} bytes that this webhook accepts")
    requester.set(Requester(f"webhook:{webhook.id}"))
    proof = await _verified(services, webhook, delivery)
    services.delivery_limits.spend(webhook, time.monotonic())
    body = await _body(delivery, services.client.offload)
    key = _key(webhook, delivery, body, proof)
    tags = {**webhook.tags, "webhook": webhook.id}
    options = StartOptions(None, key, tags)
    program = await services.client.definitions.named(webhook.workflow, options.version)
    started = await services.client.launcher.start(program, _payload(webhook, delivery, body), options)
    return Taken(started.execution, is_repeat=not started.is_new)


async def _verified(services: ServerServices, webhook: Webhook, delivery: Delivery) -> Proof:
    secret = await _secret(services, webhook)
    now = services.client.stack.clock.now()
    try:
        return verify(webhook.signature, secret, delivery.headers, delivery.body, now)
    except (SignatureRefused, StaleDelivery):
        services.delivery_limits.forged(delivery.address, time.monotonic())
        raise


async def _secret(services: ServerServices, webhook: Webhook) -> str:
    """Return the webhook's secret. The reason why it cannot be read is logged for operators and not sent to the
    caller, who only knows the path."""
    try:
        secret = await webhooks_of(services).secret(webhook)
    except UNCHECKABLE as error:
        services.delivery_limits.unchecked[webhook.id] = str(error)
        logger.error("deliveries to the webhook '%s' cannot be checked: %s", webhook.id, error)
        raise Unavailable("deliveries cannot be accepted at the moment; send it again later") from None
    services.delivery_limits.unchecked.pop(webhook.id, None)
    return secret


def _key(webhook: Webhook, delivery: Delivery, body: Any, proof: Proof) -> str | None:
    """Return the idempotency key of a delivery; None if every delivery starts the workflow."""
    named = _field(body, webhook.delivery_field) if webhook.delivery_field else ""
    named = named or (delivery.headers.get(webhook.delivery_header, "") if webhook.delivery_header else "")
    found = f"id:{named}" if named else f"id:{proof.id}" if proof.id else f"signature:{proof.signature}"
    if not named and not proof.id and not proof.signature:
        return None
    return f"webhook:{webhook.id}:{hashlib.sha256(found.encode(errors='replace')).hexdigest()}"


def _field(body: Any, path: str) -> str:
    """Return a field of a JSON body; only the path to it is decoded."""
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
    except msgspec.ValidationError:  # a number out of range
        return bytes(body)[:LONGEST_ID].decode()


def _members(body: Raw) -> dict[str, Raw] | None:
    try:
        return msgspec.json.decode(body, type=dict[str, Raw])
    except msgspec.ValidationError:
        return None


# -- the input of the workflow --------------------------------------------------------------------------------


def _payload(webhook: Webhook, delivery: Delivery, body: Any) -> Raw:
    passed = (*ALWAYS_PASSED, *webhook.headers)
    fields = {
        "body": body,
        "query": _fields(delivery.query),
        "headers": {name: delivery.headers[name] for name in passed if name in delivery.headers},
        "method": delivery.method,
        "path": delivery.path,
    }
    return Raw(msgspec.json.encode(fields))


async def _body(delivery: Delivery, offload: Offload) -> Any:
    """Return the body as input. JSON stays JSON; a large one is decoded in a process."""
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
    raise UnsupportedMedia(f"a webhook accepts JSON, forms and text, not {media[:100]!r}")


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise BadRequest("the body is not valid UTF-8") from None


def _fields(text: str) -> dict[str, Any]:
    """Decode form fields. A repeated name has a list."""
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


# -- the reply to the sender ----------------------------------------------------------------------------------


async def result_of(services: ServerServices, execution: str, seconds: float) -> ExecutionView:
    """Wait for the execution. Return it when it has ended, or in its current state when the time is over or the
    server stops."""
    ending = asyncio.ensure_future(services.client.endings.over(execution))
    closing = asyncio.ensure_future(services.closing.wait())
    try:
        # If too many calls wait already, reply with the current state.
        with contextlib.suppress(Unavailable), services.usage.waiting(NOBODY):
            await asyncio.wait((ending, closing), timeout=seconds, return_when="FIRST_COMPLETED")
        if ending.done():
            ending.result()
    finally:
        ending.cancel()
        closing.cancel()
    return await whole(services, execution)
