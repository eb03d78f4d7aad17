"""What a handle asks, asked of a server: the same questions as the engine's own client answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from dalsegno.client.filters import query_of
from dalsegno.client.problems import RouteMissing
from dalsegno.client.replies import (
    ApprovalPage,
    EventPage,
    ExecutionPage,
    ExecutionReply,
    NodeReply,
    PictureReply,
    WhyReply,
)
from dalsegno.client.starts import Starts
from dalsegno.client.transport import FIRST_PAUSE, Query, Transport, own_key
from dalsegno.client.waits import Waits
from dalsegno.core.diagnosis import Wait
from dalsegno.core.summary import NodeSummary
from dalsegno.core.values import encode_value
from dalsegno.engine.approvals import Approval
from dalsegno.engine.delays import Moment, read_moment
from dalsegno.engine.pending import UNCHANGED, Unchanged
from dalsegno.engine.scripting.looking import Picture
from dalsegno.engine.starting import StartOptions
from dalsegno.errors import InternalError
from dalsegno.model.event import Event
from dalsegno.model.execution import ENDED, Ending, ExecutionView
from dalsegno.ports.archive import ExecutionFilter

LARGEST_PAGE = 500
MOST_EVENTS = 1000
LONG_POLL = 25.0
"""Seconds that the server is asked to wait before it says that nothing has ended."""
ON_THE_WAY = 1.0
"""Seconds that the answer of a server which is there may take, beyond those that it was to wait."""
SLACK = 15.0
_MAYBE_PICTURE: Any = PictureReply | None


class ServerCalls:
    """Needs nothing but a transport, and runs on its loop. Starts, and waits for endings, share requests."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._starts = Starts(transport)
        self._waits = Waits(transport)

    # -- starting ---------------------------------------------------------------------------------------------

    async def start(self, workflow: str, payload: Any = None, options: StartOptions | None = None) -> str:
        """A start that got no answer is sent again: its key makes the second one the first."""
        return await self._create(workflow, payload, options or StartOptions())

    async def submit(self, workflow: str, payload: Any = None, options: StartOptions | None = None) -> str:
        """A start in two steps: the id of an execution that is PENDING until ``trigger`` begins it."""
        return await self._create(workflow, payload, options or StartOptions(), pending=True)

    async def _create(
        self, workflow: str, payload: Any, options: StartOptions, *, pending: bool | None = None
    ) -> str:
        body = {
            "workflow": workflow,
            "version": options.version,
            "input": payload,
            "idempotency_key": options.idempotency_key or own_key(),
            "tags": dict(options.tags),
            "priority": options.priority,
            "delay": options.delay,
            "start_at": _moment(options.start_at),
            "pending": pending,
        }
        told = {name: each for name, each in body.items() if each is not None}
        return await self._starts.start(encode_value(told, "the request"))

    # -- looking ----------------------------------------------------------------------------------------------

    async def status(self, execution: str) -> ExecutionView:
        return (await self.transport.get(_path(execution), ExecutionReply)).view()

    async def wait(self, execution: str, timeout: float | None = None) -> ExecutionView:  # noqa: ASYNC109 - as users know it
        """The server answers when it has ended; nobody asks again and again. One that is out of reach is not waited
        for longer than for the execution."""
        async with asyncio.timeout(None if timeout is None else timeout + ON_THE_WAY):
            return await self._wait(execution, timeout)

    async def _wait(self, execution: str, timeout: float | None) -> ExecutionView:  # noqa: ASYNC109 - see ``wait``
        until = None if timeout is None else time.monotonic() + timeout
        if self._waits.are_possible and (timeout is None or timeout > 0):
            try:
                return (await self._waits.ended(execution, timeout)).view()
            except RouteMissing:
                pass
        return await self._poll(execution, until)

    async def _poll(self, execution: str, until: float | None) -> ExecutionView:
        """One request after the other: of an older server, or where there is no time to wait."""
        while True:
            left = LONG_POLL if until is None else min(max(until - time.monotonic(), 0), LONG_POLL)
            began = time.monotonic()
            reply = await self.transport.poll(_path(execution, "wait"), ExecutionReply, left, SLACK)
            if reply.state in ENDED:
                return reply.view()
            if until is not None and time.monotonic() >= until:
                raise TimeoutError
            if time.monotonic() - began < min(left, 1.0):
                await asyncio.sleep(FIRST_PAUSE)  # a server that stops answers early

    async def ending(self, execution: str, timeout: float | None = None) -> Ending:  # noqa: ASYNC109 - as users know it
        view = await self.wait(execution, timeout)
        if (ending := view.ending) is None:
            raise InternalError(f"execution {execution} was said to have ended, but is {view.state}")
        return ending

    async def executions(
        self, where: ExecutionFilter, before: str | None = None, limit: int = 50
    ) -> list[ExecutionView]:
        """Newest first, without inputs and outputs; ``before`` is a cursor of the server's."""
        found: list[ExecutionView] = []
        async for view in self.all_executions(where, min(limit, LARGEST_PAGE), before):
            found.append(view)
            if len(found) >= limit:
                break
        return found

    async def all_executions(
        self, where: ExecutionFilter, page: int = 100, cursor: str | None = None
    ) -> AsyncIterator[ExecutionView]:
        """Page after page, as they are needed."""
        query = query_of(where)
        while True:
            reply = await self.transport.get(
                "executions", ExecutionPage, {**query, "limit": page, "cursor": cursor}
            )
            for each in reply.items:
                yield each.view()
            cursor = reply.next
            if cursor is None:
                return

    async def nodes(self, execution: str) -> dict[str, NodeSummary]:
        found = await self.transport.get(_path(execution, "nodes"), dict[str, NodeReply])
        return {name: each.summary() for name, each in found.items()}

    async def context(self, execution: str) -> dict[str, Any]:
        return await self.transport.get(_path(execution, "results"), dict[str, Any])

    async def events(self, execution: str, after: int = 0, limit: int = 1000) -> list[Event]:
        query = {"after": after, "limit": min(limit, MOST_EVENTS)}
        page = await self.transport.get(_path(execution, "events"), EventPage, query)
        return [each.event(execution) for each in page.events]

    async def why(self, execution: str) -> list[Wait]:
        reply = await self.transport.get(_path(execution, "why"), WhyReply)
        return [each.wait() for each in reply.reasons]

    async def picture(self, execution: str, *, variables: bool = True) -> Picture | None:
        del variables  # the server always tells them
        reply: PictureReply | None = await self.transport.get(_path(execution, "picture"), _MAYBE_PICTURE)
        return reply.picture() if reply is not None else None

    # -- commands ---------------------------------------------------------------------------------------------

    async def signal(self, execution: str, name: str, payload: Any = None, id: str | None = None) -> None:
        body = {"name": name, "payload": payload, "id": id or own_key()}
        await self.transport.send("POST", _path(execution, "signals"), Any, body, repeatable=True)

    async def cancel(self, execution: str, reason: str | None = None) -> None:
        await self.transport.send(
            "POST", _path(execution, "cancel"), Any, {"reason": reason}, repeatable=True
        )

    async def terminate(self, execution: str, reason: str | None = None) -> None:
        await self.transport.send("POST", _path(execution, "terminate"), Any, {"reason": reason})

    async def trigger(self, execution: str, payload: Any = UNCHANGED) -> None:
        body = {} if isinstance(payload, Unchanged) else {"input": payload}
        await self.transport.send("POST", _path(execution, "trigger"), Any, body, repeatable=True)

    async def pause(self, execution: str) -> None:
        await self.transport.send("POST", _path(execution, "pause"), Any, repeatable=True)

    async def resume(self, execution: str) -> None:
        await self.transport.send("POST", _path(execution, "resume"), Any, repeatable=True)

    async def rerun(
        self,
        execution: str,
        nodes: Sequence[str] | None = None,
        context: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> str:
        """Without nodes: everything that failed or was interrupted. Its key makes the second attempt the first."""
        verb = "retry" if nodes is None else "rerun"
        body = {"nodes": list(nodes), "context": dict(context or {})} if nodes is not None else None
        reply = await self.transport.send(
            "POST", _path(execution, verb), ExecutionReply, body, key=key or own_key()
        )
        return reply.id

    # -- approvals --------------------------------------------------------------------------------------------

    async def approvals(self, execution: str) -> list[Approval]:
        """What one execution waits to have decided."""
        return await self._approvals(_path(execution, "approvals"), {}, None)

    async def pending_approvals(self, workflow: str | None = None, limit: int = 100) -> list[Approval]:
        return await self._approvals("approvals", {"workflow": workflow}, limit)

    async def _approvals(self, path: str, query: Query, limit: int | None) -> list[Approval]:
        """Page after page, until there is no more or nobody wants more."""
        found: list[Approval] = []
        cursor: str | None = None
        while limit is None or len(found) < limit:
            page = LARGEST_PAGE if limit is None else min(limit - len(found), LARGEST_PAGE)
            reply = await self.transport.get(path, ApprovalPage, {**query, "limit": page, "cursor": cursor})
            found += [each.approval() for each in reply.items]
            cursor = reply.next
            if cursor is None:
                break
        return found

    async def decide(
        self,
        execution: str,
        node: str,
        decision: str,
        data: Any = None,
        by: str | None = None,
        index: int | Sequence[int] | None = None,
        comment: str | None = None,
    ) -> None:
        """Never sent twice: the second one would be told that it was decided already."""
        body = {
            "decision": decision,
            "data": data,
            "by": by,
            "index": _indexes(index),
            "comment": comment,
        }
        path = _path(execution, f"approvals/{quote(node, safe='')}")
        told = {name: each for name, each in body.items() if each is not None}
        await self.transport.send("POST", path, Any, told)


def _moment(given: Moment | None) -> str | None:
    return None if given is None else datetime.fromtimestamp(read_moment(given), UTC).isoformat()


def _path(execution: str, part: str = "") -> str:
    return f"executions/{quote(execution, safe='')}" + (f"/{part}" if part else "")


def _indexes(index: int | Sequence[int] | None) -> list[int] | None:
    if index is None:
        return None
    return [index] if isinstance(index, int) else list(index)
