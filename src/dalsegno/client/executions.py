"""The calls of a handle, sent to a server: the counterpart of the engine's own client, and its filters as queries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from dalsegno.client.problems import RouteMissing
from dalsegno.client.schemas import (
    ApprovalPage,
    EventPage,
    ExecutionPage,
    ExecutionReply,
    NodeReply,
    PictureReply,
    PublishedPage,
    RequestPage,
    RequestReply,
    WhyReply,
)
from dalsegno.client.shown import follow_chunks, watch_published
from dalsegno.client.starts import Starts
from dalsegno.client.transport import FIRST_PAUSE, Query, Transport, own_key
from dalsegno.client.turns import TurnDetailReply, TurnListReply
from dalsegno.client.waits import Waits
from dalsegno.core.diagnosis import Explanation, Wait
from dalsegno.core.scripts.turn_view import TurnPage, TurnView
from dalsegno.core.states import NodeSummary
from dalsegno.core.values import encode_value
from dalsegno.engine.journal.branches import TurnAsked
from dalsegno.engine.operations.approvals import Approval
from dalsegno.engine.operations.moves import CHUNK, Moved, MoveReport
from dalsegno.engine.operations.published import Published, StreamChunk
from dalsegno.engine.operations.requests import RequestView, too_late
from dalsegno.engine.operations.why import ScriptSnapshotView
from dalsegno.engine.options import Moment, read_moment
from dalsegno.engine.starting.moving import RetryPlan
from dalsegno.engine.starting.pending import UNCHANGED, Unchanged
from dalsegno.engine.starting.start import StartOptions
from dalsegno.errors import Conflict, InternalError, InvalidInput
from dalsegno.model.definition import LATEST, Version
from dalsegno.model.event import Event
from dalsegno.model.execution import ENDED, Ending, ExecutionView
from dalsegno.ports.archive import ExecutionFilter


def query_of(where: ExecutionFilter) -> dict[str, Any]:
    found: dict[str, Any] = {
        "workflow": where.workflow,
        "state": list(where.states),
        "tag": [f"{name}={tag}" for name, tag in where.tags],
        "parent": where.parent,
        "kind": list(where.kinds),
        "relation": list(where.relations),
        "created_since": _iso(where.created_since),
        "created_until": _iso(where.created_until),
        "ended_since": _iso(where.ended_since),
        "ended_until": _iso(where.ended_until),
        "text": where.text,
    }
    return {name: each for name, each in found.items() if each}


def _iso(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()


LARGEST_PAGE = 500
MOST_EVENTS = 1000
MOST_TURNS = 1000
LONG_POLL = 25.0
"""Seconds that the server is asked to wait before it answers that nothing has ended."""
ANSWER_DELAY = 1.0
"""Seconds that an answer may take beyond the requested waiting time."""
SLACK = 15.0
_MAYBE_PICTURE: Any = PictureReply | None


class ServerCalls:
    """Calls about executions, over a transport and on its event loop. Starts and waits share requests."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._starts = Starts(transport)
        self._waits = Waits(transport)

    # -- starts -----------------------------------------------------------------------------------------------

    async def start(self, workflow: str, payload: Any = None, options: StartOptions | None = None) -> str:
        """Start a workflow. A start without an answer is repeated; its idempotency key makes both the same start."""
        return await self._create(workflow, payload, options or StartOptions())

    async def submit(self, workflow: str, payload: Any = None, options: StartOptions | None = None) -> str:
        """Submit a start in two steps; return the id of an execution that is PENDING until ``trigger`` starts it."""
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
            "start_at": _start_at(options.start_at),
            "pending": pending,
        }
        fields = {name: each for name, each in body.items() if each is not None}
        return await self._starts.start(encode_value(fields, "the request"))

    # -- queries ----------------------------------------------------------------------------------------------

    async def status(self, execution: str) -> ExecutionView:
        return (await self.transport.get(_path(execution), ExecutionReply)).view()

    async def wait(self, execution: str, timeout: float | None = None) -> ExecutionView:  # noqa: ASYNC109 - as users know it
        """Wait for the end of an execution. The server answers when it has ended, without polling. The timeout also
        limits the wait for an unreachable server."""
        async with asyncio.timeout(None if timeout is None else timeout + ANSWER_DELAY):
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
        """Wait with one request after the other: for an older server, or without time to wait."""
        while True:
            left = LONG_POLL if until is None else min(max(until - time.monotonic(), 0), LONG_POLL)
            began = time.monotonic()
            reply = await self.transport.poll(_path(execution, "wait"), ExecutionReply, left, SLACK)
            if reply.state in ENDED:
                return reply.view()
            if until is not None and time.monotonic() >= until:
                raise TimeoutError
            if time.monotonic() - began < min(left, 1.0):
                await asyncio.sleep(FIRST_PAUSE)  # a stopping server answers early

    async def ending(self, execution: str, timeout: float | None = None) -> Ending:  # noqa: ASYNC109 - as users know it
        view = await self.wait(execution, timeout)
        if (ending := view.ending) is None:
            raise InternalError(f"execution {execution} was reported as ended, but is {view.state}")
        return ending

    async def executions(
        self, where: ExecutionFilter, before: str | None = None, limit: int = 50
    ) -> list[ExecutionView]:
        """Return executions, newest first, without inputs and outputs; ``before`` is a cursor of the server."""
        found: list[ExecutionView] = []
        async for view in self.all_executions(where, min(limit, LARGEST_PAGE), before):
            found.append(view)
            if len(found) >= limit:
                break
        return found

    async def all_executions(
        self, where: ExecutionFilter, page: int = 100, cursor: str | None = None
    ) -> AsyncIterator[ExecutionView]:
        """Yield executions page by page, on demand."""
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

    async def published(self, execution: str) -> dict[str, Any]:
        page = await self.transport.get(_path(execution, "published"), PublishedPage)
        return {each.key: each.value for each in page.values}

    def watch(self, execution: str, keys: Sequence[str] = ()) -> AsyncIterator[Published]:
        """Yield the published values and their changes, until the execution has ended."""
        return watch_published(self.transport, execution, keys)

    def stream(self, execution: str, name: str, offset: int = 0) -> AsyncIterator[StreamChunk]:
        """Yield the chunks of a stream, each once and in order."""
        return follow_chunks(self.transport, execution, name, offset)

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
        return list((await self.explain(execution)).waits)

    async def explain(self, execution: str) -> Explanation:
        """Return the waits of an execution with its state and the server's time."""
        reply = await self.transport.get(_path(execution, "why"), WhyReply)
        return reply.explanation(time.time())

    async def picture(self, execution: str, *, variables: bool = True) -> ScriptSnapshotView | None:
        del variables  # the server always returns them
        reply: PictureReply | None = await self.transport.get(_path(execution, "picture"), _MAYBE_PICTURE)
        return reply.picture() if reply is not None else None

    async def turn_page(
        self, execution: str, first: int | None = None, limit: int = 100, *, newest_first: bool = False
    ) -> TurnPage:
        """Return recorded turns from the number ``first`` on, upwards or, with ``newest_first``, downwards."""
        order = "newest" if newest_first else "oldest"
        query = {"from": first, "limit": min(limit, MOST_TURNS), "order": order}
        return (await self.transport.get(_path(execution, "turns"), TurnListReply, query)).page()

    async def turn_view(self, execution: str, number: int) -> TurnView:
        """Return one recorded turn in full."""
        return (await self.transport.get(_path(execution, f"turns/{number}"), TurnDetailReply)).view()

    # -- commands ---------------------------------------------------------------------------------------------

    async def signal(self, execution: str, name: str, payload: Any = None, id: str | None = None) -> None:
        body = {"name": name, "payload": payload, "id": id or own_key()}
        await self.transport.send("POST", _path(execution, "signals"), Any, body, repeatable=True)

    async def ask(
        self,
        execution: str,
        name: str,
        payload: Any = None,
        id: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as users know it
    ) -> Any:
        """Send a request and wait for its answer. The server answers when there is one, without polling."""
        own = id or own_key()
        until = None if timeout is None else time.monotonic() + timeout
        query = {"wait": round(_left(until), 3)}
        path = _path(execution, f"requests/{quote(name, safe='')}")
        body = {"payload": payload, "id": own}
        reply = await self.transport.send(
            "POST", path, RequestReply, body, query=query, repeatable=True, slack=_left(until) + SLACK
        )
        while reply.state in ("waiting", "received") and (until is None or time.monotonic() < until):
            began = time.monotonic()
            path = _path(execution, f"requests/{quote(own, safe='')}")
            left = _left(until)
            reply = await self.transport.poll(path, RequestReply, left, SLACK)
            if reply.state in ("waiting", "received") and time.monotonic() - began < min(left, 1.0):
                await asyncio.sleep(FIRST_PAUSE)  # a stopping server answers early
        found = reply.view(execution)
        if found.is_open:
            raise TimeoutError(too_late(found, timeout))
        return found.answer()

    async def request(self, execution: str, id: str) -> RequestView:
        path = _path(execution, f"requests/{quote(id, safe='')}")
        return (await self.transport.get(path, RequestReply)).view(execution)

    async def open_requests(self, execution: str) -> list[RequestView]:
        """Return the requests that wait for an answer, oldest first."""
        page = await self.transport.get(_path(execution, "requests"), RequestPage)
        return [each.view(execution) for each in page.items]

    async def cancel(self, execution: str, reason: str | None = None) -> None:
        await self._end(execution, "cancel", reason)

    async def terminate(self, execution: str, reason: str | None = None) -> None:
        await self._end(execution, "terminate", reason)

    async def _end(self, execution: str, verb: str, reason: str | None) -> None:
        """End an execution. If the reply to the first request was lost, the second one is refused because the
        execution has ended; that refusal then counts as success."""
        lost = asyncio.Event()
        try:
            await self.transport.send(
                "POST",
                _path(execution, verb),
                Any,
                {"reason": reason},
                repeatable=True,
                when_lost=lost.set,
            )
        except Conflict:
            if not lost.is_set() or (await self.status(execution)).state != "CANCELLED":
                raise

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
        *,
        from_start: bool = False,
        version: Version = None,
        turn: TurnAsked | None = None,
    ) -> str:
        """Rerun nodes; without nodes, everything that failed or was interrupted. The idempotency key makes a
        repeated request the same rerun. ``from_start``: a script or Python workflow starts over. ``version``: of the
        workflow, instead of the one that it ran. ``turn``: start with its machine as it was then."""
        verb = "retry" if nodes is None and turn is None else "rerun"
        body: dict[str, Any] = {}
        if turn is not None:
            body = _turn_body(turn)
        elif nodes is not None:
            body = {"nodes": list(nodes), "context": dict(context or {})}
        elif from_start:
            body = {"from_start": True}
        if version is not None:
            body["version"] = version
        reply = await self.transport.send(
            "POST", _path(execution, verb), ExecutionReply, body or None, key=key or own_key()
        )
        return reply.id

    async def preview_retry(
        self,
        execution: str,
        nodes: Sequence[str] | None = None,
        version: Version = None,
        *,
        from_start: bool = False,
        turn: TurnAsked | None = None,
    ) -> RetryPlan:
        """Return what a retry, or a rerun at a turn, would do, or raise what it would raise."""
        if nodes is not None:
            raise InvalidInput("a server previews retries and reruns at turns, and no reruns of chosen nodes")
        if turn is not None:
            body = {**_turn_body(turn), **({"version": version} if version is not None else {})}
            path = f"{_path(execution, 'rerun')}/preview"
            return await self.transport.send("POST", path, RetryPlan, body, repeatable=True)
        query = {"version": version, "from_start": "true" if from_start else None}
        return await self.transport.get(_path(execution, "retry"), RetryPlan, query)

    async def move(self, execution: str, version: Version, *, dry_run: bool = False) -> Moved:
        """Let an execution that has not ended go on with another version of its workflow, or raise the reasons."""
        body = {"version": version or LATEST, "dry_run": dry_run}
        return await self.transport.send("POST", _path(execution, "move"), Moved, body, repeatable=True)

    async def move_some(
        self,
        workflow: str,
        before: Version,
        version: Version,
        *,
        dry_run: bool = False,
        cursor: str | None = None,
        limit: int = CHUNK,
        source: str | None = None,
    ) -> MoveReport:
        """Move a chunk of a workflow's executions to another version. ``source``: a script that is not deployed, with
        ``dry_run``.
        """
        body: dict[str, Any] = {
            "from": before or LATEST,
            "dry_run": dry_run,
            "limit": limit,
            "cursor": cursor,
        }
        body |= {"to": version or LATEST} if source is None else {"source": source}
        path = f"definitions/{quote(workflow, safe='')}/move"
        return await self.transport.send("POST", path, MoveReport, body, repeatable=True)

    # -- approvals --------------------------------------------------------------------------------------------

    async def approvals(self, execution: str) -> list[Approval]:
        """Return the open approvals of one execution."""
        return await self._approvals(_path(execution, "approvals"), {}, None)

    async def pending_approvals(self, workflow: str | None = None, limit: int = 100) -> list[Approval]:
        return await self._approvals("approvals", {"workflow": workflow}, limit)

    async def _approvals(self, path: str, query: Query, limit: int | None) -> list[Approval]:
        """Read page by page, up to ``limit``."""
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
        """Decide an approval. Never repeated: the second request would be refused as already decided."""
        body = {
            "decision": decision,
            "data": data,
            "by": by,
            "index": _indexes(index),
            "comment": comment,
        }
        path = _path(execution, f"approvals/{quote(node, safe='')}")
        fields = {name: each for name, each in body.items() if each is not None}
        await self.transport.send("POST", path, Any, fields)


def _start_at(given: Moment | None) -> str | None:
    return (
        None if given is None else datetime.fromtimestamp(read_moment(given, "'start_at'"), UTC).isoformat()
    )


def _left(until: float | None) -> float:
    """Return the seconds of the next long poll."""
    return LONG_POLL if until is None else min(max(until - time.monotonic(), 0), LONG_POLL)


def _turn_body(turn: TurnAsked) -> dict[str, Any]:
    body: dict[str, Any] = {"at": turn.at}
    if turn.variables:
        body["set"] = dict(turn.variables)
    if turn.answers:
        body["answers"] = dict(turn.answers)
    return body


def _path(execution: str, part: str = "") -> str:
    return f"executions/{quote(execution, safe='')}" + (f"/{part}" if part else "")


def _indexes(index: int | Sequence[int] | None) -> list[int] | None:
    if index is None:
        return None
    return [index] if isinstance(index, int) else list(index)
