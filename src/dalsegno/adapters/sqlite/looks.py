"""What the reader answers: jobs that need more than one statement."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from dalsegno.adapters.sqlite.limits import view_of
from dalsegno.adapters.sqlite.statements import SQL
from dalsegno.adapters.sqlite.views import execution_view, machine_view, whole_row
from dalsegno.core.settlement import BarrierRow, TokenRow, barrier_view, token_view
from dalsegno.model.ids import scope_chain
from dalsegno.model.machine import MachineView
from dalsegno.model.token import Lease, not_among, with_handed_over
from dalsegno.ports.ledger import Inspection, QueueView

Row = tuple[Any, ...]


def inspect(connection: sqlite3.Connection, execution: str, now: float) -> Inspection | None:
    row = whole_row(connection, execution)
    if row is None:
        return None
    stored = connection.execute(SQL["token.unfinished"], (execution,))
    tokens = tuple(token_view(TokenRow(*token[1:])) for token in stored)
    waiting = {(token.limit_key, token.allowance) for token in tokens if token.state == "ready"}
    barriers = connection.execute(SQL["join.barriers_of"], (execution,))
    return Inspection(
        execution_view(row),
        tokens,
        tuple(barrier_view(BarrierRow(execution, *barrier)) for barrier in barriers),
        tuple(view_of(connection, key, own, now) for key, own in waiting if key is not None),
    )


def machine(connection: sqlite3.Connection, execution: str) -> MachineView | None:
    row = connection.execute(SQL["machine.of"], (execution,)).fetchone()
    if row is None:
        return None
    completions = connection.execute(SQL["machine.inbox_of"], (execution,))
    return machine_view(row, completions, connection.execute(SQL["machine.mailbox_of"], (execution,)))


def outputs(connection: sqlite3.Connection, execution: str, ids: Sequence[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in ids:
        row = connection.execute(SQL["history.output_of"], (execution, name)).fetchone()
        if row is not None:
            found[name] = row[0]
    return found


def queues(connection: sqlite3.Connection) -> list[QueueView]:
    found: dict[str, QueueView] = {}
    for statement in ("queues.ready", "queues.in_line"):
        for queue, ready, oldest in connection.execute(SQL[statement]):
            before = found.get(queue, QueueView(queue, 0, 0, None))
            first = oldest if before.oldest is None else min(oldest, before.oldest)
            found[queue] = QueueView(queue, before.ready + ready, 0, first)
    for queue, running in connection.execute(SQL["queues.running"]):
        before = found.get(queue, QueueView(queue, 0, 0, None))
        found[queue] = QueueView(queue, before.ready, running, before.oldest)
    return [found[queue] for queue in sorted(found)]


def any_ready(connection: sqlite3.Connection, queues: Iterable[str]) -> bool:
    """Whether a claim for these queues may find something."""
    asked = json.dumps(list(queues))
    return connection.execute(SQL["token.any_ready"], (asked,)).fetchone() is not None


def schedules(connection: sqlite3.Connection) -> tuple[float | None, str | None]:
    """When the next timer comes due, and the oldest entry of the outbox."""
    due = connection.execute(SQL["token.next_due"]).fetchone()
    entry = connection.execute(SQL["history.oldest_entry"]).fetchone()
    return due and due[0], entry and entry[0]


def obsolete(connection: sqlite3.Connection, leases: Sequence[Lease]) -> list[Lease]:
    wanted = [
        (lease.execution, lease.token, lease.fence, scope_chain(lease.scope))
        for lease in with_handed_over(leases)
    ]
    return not_among(leases, set(connection.execute(SQL["token.validly_leased"], (json.dumps(wanted),))))


def of_others(
    connection: sqlite3.Connection,
    queues: Sequence[str],
    pass_over: Collection[str],
    only_long: bool,
    limit: int,
    since: float,
) -> tuple[list[Row], list[Row]]:
    asked = {
        "pass_over": json.dumps(list(pass_over)),
        "only_long": only_long,
        "limit": limit,
        "since": since,
    }
    plain, in_line = (
        [row for queue in queues for row in connection.execute(SQL[statement], asked | {"queue": queue})]
        for statement in ("token.ready_of_others", "token.first_of_others")
    )
    return plain, in_line


def gone_workers(connection: sqlite3.Connection, now: float, dead: Sequence[str]) -> list[str]:
    expired = {worker for (worker,) in connection.execute(SQL["worker.gone"], (now,))}
    return sorted(expired.union(dead))


def leased_by(connection: sqlite3.Connection, workers: Sequence[str]) -> list[tuple[str, str]]:
    return connection.execute(SQL["token.leased_by"], (json.dumps(workers),)).fetchall()
