"""The audit log: who changed what and when. It never contains bodies, queries or secrets.

Entries are kept in memory until the reply has been sent and are then appended in batches; a graceful stop writes
all of them. A process that is killed may lose the entries of its last quarter of a second.

Names of actions are stored, so they do not change with function names.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dalsegno.ports.clock import Clock
from dalsegno.ports.records import Records
from dalsegno.ports.stack import Stack
from dalsegno.server.auth.authentication import NOBODY, Caller
from dalsegno.server.http.rate_limits import subscriber
from dalsegno.server.http.request import GuardedRequest, is_audited, without_secrets

ACTIONS: dict[str, str] = {
    "approve_definition": "definition_approvals.approve",
    "cancel_execution": "executions.cancel",
    "change_executions": "bulk.bulk",
    "claim_tasks": "tasks.claim",
    "compare_versions": "definitions.diff",
    "complete_task": "tasks.complete",
    "complete_task_by_hand": "by_hand.complete",
    "create_approval_link": "approvals.make_link",
    "create_key": "keys.add",
    "create_schedule": "schedules.add",
    "decide_approval": "approvals.decide",
    "delete_alert": "alerts.remove",
    "delete_alias": "definitions.remove_alias",
    "delete_credential": "credentials.remove",
    "delete_definition": "definitions.remove",
    "delete_execution": "bulk.remove",
    "delete_limit": "limits.remove",
    "delete_schedule": "schedules.remove",
    "delete_version": "definitions.remove_version",
    "delete_webhook": "webhooks.remove",
    "deliver_webhook_by_patch": "hooks.receive",
    "deliver_webhook_by_post": "hooks.receive",
    "deliver_webhook_by_put": "hooks.receive",
    "deploy_definition": "definitions.deploy",
    "drop_dead_letter": "dead.drop",
    "end_definition_grace": "definition_approvals.end_grace",
    "explain_execution": "executions.why",
    "fail_task": "tasks.fail",
    "fail_task_by_hand": "by_hand.fail",
    "get_alert": "alerts.alert",
    "get_credential": "credentials.credential",
    "get_definition": "definitions.definition",
    "get_error_code": "errors.one",
    "get_execution": "executions.one",
    "get_execution_nodes": "executions.nodes",
    "get_execution_picture": "executions.picture",
    "get_execution_results": "executions.results",
    "get_health": "health.health",
    "get_limit": "limits.one",
    "get_liveness": "health.live",
    "get_program": "inspection.program",
    "get_readiness": "health.ready",
    "get_schedule": "schedules.schedule",
    "get_session": "session.who",
    "get_submission_results": "submissions.workflow_results",
    "get_submission_status": "submissions.workflow_status",
    "get_task": "by_hand.one",
    "get_turn": "turns.turn",
    "get_webhook": "webhooks.webhook",
    "heartbeat_tasks": "tasks.heartbeat",
    "inspect_execution": "inspection.inspection",
    "list_alerts": "alerts.alerts",
    "list_approvals": "approvals.approvals",
    "list_audit_entries": "audit.audit",
    "list_credentials": "credentials.credentials",
    "list_dead_letters": "dead.dead",
    "list_definition_approvals": "definition_approvals.listed",
    "list_definitions": "definitions.definitions",
    "list_error_codes": "errors.every_code",
    "list_execution_approvals": "approvals.of_execution",
    "list_execution_events": "executions.events",
    "list_executions": "executions.executions",
    "list_keys": "keys.keys",
    "list_limits": "limits.limits",
    "list_protected_names": "protected_names.protected_names",
    "list_queues": "queues.queues",
    "list_schedules": "schedules.schedules",
    "list_tasks": "by_hand.open_tasks",
    "list_turns": "turns.turns",
    "list_unfinished_programs": "inspection.unfinished",
    "list_versions": "definitions.versions",
    "list_webhooks": "webhooks.webhooks",
    "list_workers": "workers.workers",
    "move_execution": "executions.move",
    "move_executions": "definitions.move",
    "open_approval_link": "approvals.open_link",
    "pause_execution": "executions.pause",
    "pause_schedule": "schedules.pause",
    "protect_name": "protected_names.protect",
    "put_alert": "alerts.put",
    "put_credential": "credentials.put",
    "put_schedule": "schedules.put",
    "put_webhook": "webhooks.put",
    "requeue_task_by_hand": "by_hand.requeue",
    "rerun_execution": "executions.rerun",
    "resume_execution": "executions.resume",
    "resume_schedule": "schedules.resume",
    "retry_dead_letter": "dead.retry",
    "retry_execution": "executions.retry",
    "revoke_key": "keys.revoke",
    "rotate_alert_secret": "alerts.rotate",
    "rotate_credentials": "credentials.rotate",
    "set_alias": "definitions.set_alias",
    "set_limit": "limits.set_limit",
    "sign_in": "session.sign_in",
    "sign_out": "session.sign_out",
    "ask_execution": "executions.ask",
    "signal_execution": "executions.signal",
    "skip_task_by_hand": "by_hand.skip",
    "start_execution": "executions.start",
    "start_executions": "executions.start_batch",
    "stream_changes": "stream.changes",
    "stream_endings": "waiting.endings",
    "stream_execution": "stream.stream",
    "submit_workflow": "submissions.submit",
    "terminate_execution": "executions.terminate",
    "test_alert": "alerts.test",
    "trigger_execution": "submissions.trigger",
    "trigger_schedule": "schedules.trigger",
    "trigger_submission": "submissions.trigger_workflow",
    "unprotect_name": "protected_names.unprotect",
    "update_key": "keys.change",
    "use_approval_link": "approvals.use_link",
    "validate_definition": "definitions.validate",
    "wait_for_execution": "waiting.wait",
    "withdraw_definition_approval": "definition_approvals.withdraw",
}


logger = logging.getLogger("dalsegno.audit")

LOG = "audit"
BATCH = 500
WAITING = 10_000
"""Entries kept in memory while the store is unreachable; further entries go to the Python log `dalsegno.audit`."""


TOO_MANY = 429
CLIENT_ERRORS = (400, 404, 405, 408, 413, 415, 422, 429)
"""Statuses not recorded for callers without a key: the request was malformed, or named nothing that exists."""
SUMMED_SECONDS = 60.0
SUMMED_ADDRESSES = 100
"""Pairs of address and route that are counted separately within a minute; all other refusals share one entry per
route."""
TRIMMED_EVERY = 100
"""Divisor of the row limit: the log is checked against its limit after it may have grown by this fraction."""


class Entry(Struct, frozen=True, omit_defaults=True):
    at: float
    who: str
    via: str
    method: str
    path: str
    action: str | None = None
    """Module and name of the route: ``executions.start``."""
    status: int | None = None
    """None: the caller disconnected before there was a reply."""
    address: str | None = None
    key: str | None = None
    count: int | None = None
    """Number of refusals like this one that followed within its minute; the entry represents all of them."""


class Refusals:
    """Aggregation of refusals of callers without a key and of keys over a quota. The first refusal in a minute per
    address or key becomes an entry; the others are counted and become one entry at the end of the minute. A
    flood therefore adds a bounded number of rows."""

    def __init__(self) -> None:
        self._since = -math.inf
        self._counted: dict[tuple[str, str | None, int | None], tuple[Entry, int]] = {}

    def add(self, entry: Entry) -> list[Entry]:
        """Count a refusal. Return the entries to write now."""
        due = self.due(entry.at)
        if not self._counted:
            self._since = entry.at
        place = (entry.key or subscriber(entry.address or ""), entry.action, entry.status)
        if place not in self._counted and len(self._counted) >= SUMMED_ADDRESSES:
            place, entry = ("", entry.action, entry.status), replace(entry, address=None)
        first, more = self._counted.get(place, (entry, -1))
        self._counted[place] = first, more + 1
        return due if more >= 0 else [*due, entry]

    def due(self, now: float) -> list[Entry]:
        """Return the counts of a minute that has passed."""
        if now - self._since < SUMMED_SECONDS:
            return []
        found = [replace(first, count=more) for first, more in self._counted.values() if more]
        self._counted.clear()
        return found


class Audit:
    records: Records
    _clock: Clock

    def __init__(self) -> None:
        self._waiting: deque[Entry] = deque()
        self._refusals = Refusals()
        self._appended: float = math.inf
        """Entries appended since the last check against the row limit; infinite before the first check."""
        self._writing: asyncio.Task[None] | None = None

    def use(self, stack: Stack) -> None:
        """Write to the log of this store."""
        self.records, self._clock = stack.records, stack.clock

    def around(self, visit: GuardedRequest, app: ASGIApp) -> ASGIApp:
        """Wrap an application so that calls that may change something are recorded when they end."""
        if visit.is_safe or not is_audited(visit.path):
            return app
        began = self._clock.now()

        async def noted(scope: Scope, receive: Receive, send: Send) -> None:
            status: int | None = None

            async def noting(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await app(scope, receive, noting)
            except Exception:
                status = status or 500
                raise
            finally:
                self._note_call(_entry(visit, scope, began, status))

        return noted

    def _note_call(self, entry: Entry) -> None:
        is_limited = entry.via != "nobody" and entry.status == TOO_MANY  # a key over its quota
        if (entry.via != "nobody" and not is_limited) or (entry.status is not None and entry.status < 400):
            self.note(entry)
        elif is_limited or entry.status not in CLIENT_ERRORS:
            for each in self._refusals.add(entry):
                self.note(each)

    def note(self, entry: Entry) -> None:
        if len(self._waiting) >= WAITING:
            logger.warning("the audit log cannot be written; this entry is missing: %s", _text(entry))
            return
        self._waiting.append(entry)

    async def flush(self) -> None:
        """Append the waiting entries. On failure they stay in the buffer and the error is raised. Cancelling this
        call does not cancel the write, which may fail later and must then restore its entries."""
        if self._writing is None or self._writing.done():
            for each in self._refusals.due(self._clock.now()):
                self.note(each)
            self._writing = asyncio.create_task(self._write(), name="dalsegno-audit")
            self._writing.add_done_callback(_take_note)
        await asyncio.shield(self._writing)

    async def _write(self) -> None:
        while self._waiting:
            await self._append([self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))])

    async def _append(self, batch: list[Entry]) -> None:
        try:
            await self.records.append(LOG, *map(msgspec.json.encode, batch))
        except Exception:
            self._waiting.extendleft(reversed(batch))
            raise
        self._appended += len(batch)

    async def close(self) -> None:
        for each in self._refusals.due(math.inf):
            self.note(each)
        try:
            await self.flush()
        finally:
            for entry in self._waiting:
                logger.warning("the audit log cannot be written; this entry is missing: %s", _text(entry))

    async def trim(self, seconds: float) -> int:
        """Remove entries older than ``seconds``, in chunks; return their number."""
        return await self._trim_before(self._clock.now() - seconds)

    async def trim_to(self, rows: int) -> int:
        """Remove the oldest entries beyond ``rows``, in chunks; return their number. Entries of one batch share a
        timestamp and are removed together. The store is asked only if the log may have grown by a hundredth of
        the limit."""
        if self._appended < max(rows // TRIMMED_EVERY, 1):
            return 0
        newest = await self.records.entries(LOG, limit=1)
        over = await self.records.entries(LOG, newest[0].number - rows + 1, 1) if newest else []
        gone = await self._trim_before(math.nextafter(over[0].at, math.inf)) if over else 0
        self._appended = 0
        return gone

    async def _trim_before(self, moment: float) -> int:
        gone = 0
        while chunk := await self.records.trim(LOG, moment):
            gone += chunk
        return gone


def _entry(visit: GuardedRequest, scope: Scope, at: float, status: int | None) -> Entry:
    caller: Caller = scope.get("state", {}).get("caller", NOBODY)
    return Entry(
        at=at,
        who=caller.name,
        via=caller.via,
        method=visit.method,
        path=without_secrets(visit.path),
        action=_action(scope),
        status=status,
        address=visit.address,
        key=caller.key,
    )


def _take_note(task: asyncio.Task[None]) -> None:
    """Retrieve the exception of a write: its waiter receives it; without one, the next write reports the failure."""
    if not task.cancelled():
        task.exception()


def _action(scope: Scope) -> str | None:
    operation = getattr(scope.get("route"), "operation_id", None)
    return ACTIONS.get(operation, operation) if operation is not None else None


def _text(entry: Entry) -> str:
    return msgspec.json.encode(entry).decode()
