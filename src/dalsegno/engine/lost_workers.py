"""Workers that hold tokens of an execution and do not live any more: what is said of those until their leases end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol

from dalsegno.core.diagnosis import Lost
from dalsegno.engine.processes import dead_among
from dalsegno.engine.remote_sessions import remote_worker_of
from dalsegno.engine.worker_info import read_info
from dalsegno.model.inspection import Inspection
from dalsegno.ports.ledger import WorkerView


class Roll(Protocol):
    """What is asked of a ledger here."""

    def now(self) -> float: ...

    async def workers(self) -> Sequence[WorkerView]: ...


async def lost_workers(ledger: Roll, inspection: Inspection) -> Mapping[str, Lost]:
    """By the name under which they hold leases. One whose row is gone as well is left out: its tokens are being taken
    back this moment."""
    owners = {token.owner for token in inspection.tokens if token.state == "leased" and token.owner}
    if not owners:
        return {}
    gone, now = set(dead_among(sorted(owners))), ledger.now()
    return {
        view.id: _lost(view, now)
        for view in await ledger.workers()
        if view.id in owners and (view.id in gone or view.expires_at <= now)
    }


def _lost(view: WorkerView, now: float) -> Lost:
    heard = read_info(view.info).heard
    since = f" (last heard of at {_clock(heard)})" if heard else ""
    name = remote_worker_of(view.id) or view.id
    if view.expires_at > now:
        then = f"its lease ends at {_clock(view.expires_at)}, then another worker takes it"
    else:
        then = f"its lease has ended at {_clock(view.expires_at)}: a scheduler takes it back"
    return Lost(f"its worker {name} is dead{since}; {then}", view.expires_at)


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
