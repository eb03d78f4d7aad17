"""What a resume needs to know, read from the stores: completions, signals, and why somebody wants it to end."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.core.script_bodies import blob_of, error_in
from dalsegno.core.values import decode_value
from dalsegno.engine.budget import is_light
from dalsegno.engine.scripting.following import Job
from dalsegno.engine.scripting.hot import size_of
from dalsegno.lang.effects import Ok, Outcome, promise_id
from dalsegno.lang.limits import Heavy
from dalsegno.model.execution import ExecutionView
from dalsegno.model.machine import Completion, MachineView, SignalView
from dalsegno.ports.archive import Archive
from dalsegno.ports.blobs import Blobs

MOST_ATTEMPTS = 1000
"""Retries of retries that are counted."""
RECENT = 200
"""Events among which the request to end is looked for."""


class Reading:
    def __init__(self, archive: Archive, blobs: Blobs) -> None:
        self.archive = archive
        self.blobs = blobs

    async def job(self, execution: str, view: MachineView, now: float) -> Job:
        is_news = view.cancel == "cancel" and not view.interrupted
        return Job(
            execution,
            view.version,
            view.inbox,
            now,
            {promise_id(each.promise): await self.outcome(execution, each) for each in view.completions},
            {promise_id(each.promise): each.number for each in view.completions},
            {promise_id(each.promise): size_of(each) for each in view.completions},
            view.signals,
            await self.payloads(execution, view.signals),
            view.cancel,
            view.interrupted,
            await self._reason(execution) if is_news else None,
        )

    async def outcome(self, execution: str, completion: Completion) -> Outcome:
        blob = blob_of(completion) if completion.ok else None
        if blob is None:
            return outcome_of(completion)
        if is_light.get():
            raise Heavy
        return Ok(decode_value(await self.blobs.get(execution, blob)))

    async def payloads(self, execution: str, signals: Sequence[SignalView]) -> dict[str, Outcome]:
        """What each signal brings."""
        return {
            signal.id: await self.outcome(execution, Completion(0, True, signal.data)) for signal in signals
        }

    async def attempt(self, view: ExecutionView) -> int:
        """Which try of the same thing an execution is: one more than what it retries, as far as that is kept."""
        found = 1
        while view.relation == "retry" and view.parent is not None and found < MOST_ATTEMPTS:
            before = await self.archive.execution(view.parent)
            found += 1
            if before is None:
                return found
            view = before
        return found

    async def _reason(self, execution: str) -> str | None:
        """Why somebody wants it cancelled, as the history says. That was a moment ago."""
        view = await self.archive.execution(execution)
        seq = view.seq if view is not None else 0
        for event in reversed(await self.archive.events(execution, max(seq - RECENT, 0), RECENT)):
            if event.kind == "CancelRequested" and event.data is not None:
                reason = decode_value(event.data).get("reason")
                return reason if isinstance(reason, str) else None
        return None


def outcome_of(completion: Completion) -> Outcome:
    """Of a completion whose value is not in a blob."""
    return Ok(decode_value(completion.data[1:])) if completion.ok else error_in(completion)
