"""Approval links: the holder of a link may answer one question, once, until the link expires.

A link contains 32 random bytes; the store keeps only their hash, so the store's content opens no link. A link is
bound to the token that asks and cannot answer a later question of the same node.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import Struct

from dalsegno.admin.keys import digest_of
from dalsegno.engine.client import Client
from dalsegno.engine.operations.approvals import Approval, ApprovalPlace, Approvals, place_of
from dalsegno.engine.options import read_duration
from dalsegno.errors import Conflict, InvalidInput, NotFound
from dalsegno.model.execution import ExecutionView
from dalsegno.ports.records import Record
from dalsegno.server.executions.filters import from_cursor, to_cursor, unknown_cursor

KIND = "approval-link"
LONGEST = 366 * 86_400.0
KEPT = 30 * 86_400.0
"""Seconds for which a link is kept after its end, so that its page can show the outcome."""
SWEPT = 20


class Link(Struct, frozen=True):
    execution: str
    node: str
    indexes: tuple[int, ...]
    token: str
    """The execution's token that asks."""
    expires_at: float
    by: str | None = None
    """The person who was given the link; None: the person names themselves when deciding."""
    used_at: float | None = None
    decision: str | None = None


State = Literal["open", "unknown", "expired", "used", "decided"]


@dataclass(frozen=True, slots=True)
class Found:
    """A link and its state. ``decided``: the question was answered otherwise, timed out, or its execution ended."""

    state: State
    link: Link | None = None
    approval: Approval | None = None
    context: dict[str, Any] | None = None
    """The input of the workflow."""


class _ThisQuestion(Approvals):
    """An approvals service restricted to the question of one token."""

    def __init__(self, client: Client, token: str) -> None:
        super().__init__(client)
        self._token = token

    async def _open(self, view: ExecutionView) -> list[Approval]:
        return [each for each in await super()._open(view) if each.token == self._token]


class Links:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.records = client.stack.records

    async def make(
        self, execution: str, node: str, index: Sequence[int] | None, expires: str | float, by: str | None
    ) -> tuple[str, Link]:
        """Create a link. Return the secret part of its address, which is not stored, and the link."""
        asked = await self._asked(execution, node, index)
        now = self.client.stack.clock.now()
        link = Link(execution, node, asked.indexes, asked.token, now + _lifetime(expires), by)
        text = secrets.token_urlsafe(32)
        await self.records.put(KIND, digest_of(text), msgspec.json.encode(link), expected=0)
        await self._sweep(now)
        return text, link

    async def _asked(self, execution: str, node: str, index: Sequence[int] | None) -> Approval:
        found = await self.client.approvals(execution)
        wanted = None if index is None else tuple(index)
        fitting = [each for each in found if each.node == node and wanted in (None, each.indexes)]
        if not fitting:
            raise Conflict(f"node '{node[:200]}' of execution {execution} is not waiting for a decision")
        if len(fitting) > 1:
            raise InvalidInput(
                f"/body/index: node '{node}' waits for {len(fitting)} decisions; say which item"
            )
        return fitting[0]

    async def find(self, text: str) -> Found:
        """Return the link without changing anything."""
        record = await self.records.get(KIND, digest_of(text))
        if record is None:
            return Found("unknown")
        link = _read(record)
        if link.used_at is not None:
            return Found("used", link)
        if link.expires_at <= self.client.stack.clock.now():
            return Found("expired", link)
        try:
            asked = await _ThisQuestion(self.client, link.token).of(link.execution)
        except NotFound:  # the execution was removed
            asked = []
        if not asked:
            return Found("decided", link)
        view = await self.client.status(link.execution)
        return Found("open", link, asked[0], {"input": msgspec.json.decode(view.input)})

    async def decide(
        self, text: str, decision: str, data: Any, by: str | None, comment: str | None = None
    ) -> Found:
        """Answer the question if the link is open, and return the link as ``find`` does. Raises InvalidInput if the
        decision does not fit the form, and Conflict if the question was answered concurrently; neither changes
        anything."""
        found = await self.find(text)
        if found.state != "open" or found.link is None:
            return found
        link = found.link
        question = _ThisQuestion(self.client, link.token)
        decider = link.by or by
        await question.decide(link.execution, link.node, decision, data, decider, link.indexes, comment)
        used = msgspec.structs.replace(link, used_at=self.client.stack.clock.now(), decision=decision)
        await self.records.put(KIND, digest_of(text), msgspec.json.encode(used))
        return found

    async def _sweep(self, now: float) -> None:
        """Remove a few expired links on each call, so that they do not accumulate and no caller waits for long."""
        for record in await self.records.page(KIND, secrets.token_hex(4), SWEPT):
            if _read(record).expires_at + KEPT < now:
                await self.records.remove(KIND, record.id, record.version)


def approval_cursor(last: Approval) -> str:
    """Return the cursor of the page after this approval."""
    return to_cursor(json.dumps(place_of(last)))


def approval_place(cursor: str | None) -> ApprovalPlace | None:
    place = from_cursor(cursor)
    if place is None:
        return None
    try:
        return msgspec.json.decode(place, type=ApprovalPlace)
    except msgspec.DecodeError:
        raise unknown_cursor() from None


def _read(record: Record) -> Link:
    return msgspec.json.decode(record.data, type=Link)


def _lifetime(expires: str | float) -> float:
    seconds = read_duration(expires, "/body/expires")
    if not 0 < seconds <= LONGEST:
        raise InvalidInput(
            "/body/expires: a link must be valid for longer than 0 seconds, and for a year at most"
        )
    return seconds
