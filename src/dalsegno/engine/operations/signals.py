"""External signals, buffered by the ledger once per id and compared if an id is sent again."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.graph.step_input import Result
from dalsegno.core.scripts.token_bodies import succeeded
from dalsegno.core.values import encode_value
from dalsegno.engine.executions import StoredExecutions
from dalsegno.engine.steps.values import SMALL, Storage
from dalsegno.engine.subprocesses.job_pool import digest
from dalsegno.errors import Conflict, InvalidInput, KeyReused, LimitExceeded
from dalsegno.model.effect import PostSignal
from dalsegno.model.event import Event, NewEvent
from dalsegno.model.ids import new_execution_id
from dalsegno.model.machine import REQUEST, request_in
from dalsegno.model.transition import AlreadyApplied, Applied, Transition

LONGEST_SIGNAL_NAME = 500
COPIES = 2
"""Copies of a payload: one with the signal until it is consumed, one in the history."""
COUNT_EVERY = 100
REMEMBERED = 10_000
"""Executions whose signals are counted."""
PAGE = 1000


class _EventData(Struct, frozen=True):
    """Data of a signal's event other than its payload."""

    id: str | None = None
    """Id given by the sender; without one the signal cannot be sent again."""
    digest: str | None = None


encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_EventData).decode


class Signals:
    def __init__(self, stored: StoredExecutions) -> None:
        self.stored = stored
        self.storage = Storage(stored.stack.blobs, stored.limits.stored_bytes)
        self._unseen: OrderedDict[str, int] = OrderedDict()
        """Number of signals this process may still send to an execution before it counts the waiting ones again."""

    async def send(self, execution: str, name: str, payload: Any, id: str | None) -> None:
        """Send a signal. Signals are buffered first in, first out per name. The same ``id`` with the same name and
        payload has no effect, also after the execution has ended; with another name or payload it is refused.
        """
        _check_name(name)
        if id is not None and request_in(id) is not None:
            raise InvalidInput(f"a signal's id does not begin with {REQUEST!r}: that is kept for requests")
        kind = (await self.stored.outline(execution)).kind
        if kind in ("task", "schedule"):
            raise Conflict(
                f"execution {execution} is a {kind}: it accepts no signals; send the signal to its workflow"
            )
        raw = encode_value(payload, "the signal's payload")
        try:
            await self.refuse_many(execution)
            result = await self.stored.results.of_raw(execution, raw, "the signal's payload")
            charged = COPIES * len(raw) if result.blob is None and len(raw) > SMALL else 0
            if charged:
                await self.storage.charge(execution, charged)
        except LimitExceeded:
            if id is not None and await self._was_received(execution, name, raw, id):
                return
            raise
        transition = await self._prepared(execution, name, raw, result, id)
        outcome = await self.stored.committer.commit(transition, wait_for_store=False)
        if isinstance(outcome, Applied):
            return
        if charged:
            await self.storage.charge(execution, -charged)
        if id is not None and await self._was_received(execution, name, raw, id):
            return
        if not isinstance(outcome, AlreadyApplied):
            raise await self.stored.refusal(outcome, execution, "signal")

    async def _prepared(
        self, execution: str, name: str, raw: bytes, result: Result, id: str | None
    ) -> Transition:
        now = self.stored.stack.ledger.now()
        fields: dict[str, Any] = {"payload": Raw(raw)} if result.blob is None else {}
        if id is not None:
            fields |= {"id": id, "digest": await digest(raw, self.stored.offload)}
        event = NewEvent("SignalReceived", name, "", now, encode(fields) if fields else None)
        effect = PostSignal(id or new_execution_id(now), name, succeeded(0, result).data, event)
        return Transition(execution, (effect,))

    async def refuse_many(self, execution: str) -> None:
        """Enforce the limit on waiting signals. They are counted once per `COUNT_EVERY` signals, so each process may
        exceed the limit by that many.
        """
        most = self.stored.limits.waiting_signals
        left = self._unseen.pop(execution, min(COUNT_EVERY, most))
        if left <= 0:
            waiting = await self.stored.stack.ledger.waiting_signals(execution, most)
            left = min(COUNT_EVERY, most - waiting)
        self._unseen[execution] = max(left - 1, 0)
        if len(self._unseen) > REMEMBERED:
            self._unseen.popitem(last=False)
        if left <= 0:
            raise LimitExceeded(
                f"{most:,} signals wait in execution {execution}, which is the limit waiting_signals;"
                " nothing was sent. Let its workflow take them in a loop, send fewer, or raise"
                " EngineLimits(waiting_signals=…)"
            )

    async def _was_received(self, execution: str, name: str, raw: bytes, id: str) -> bool:
        """Return True if exactly this signal is on record. Raises KeyReused if the id belongs to another signal. The
        ledger keeps no payloads of consumed signals, so the history is read; only repetitions pay for that.
        """
        found = await self._event_of(execution, id)
        if found is None:
            return False
        same = _decode(found.data or b"{}").digest == await digest(raw, self.stored.offload)
        if found.node != name or not same:
            raise KeyReused(
                f"the id {id[:100]!r} was used for another signal to execution {execution}: '{found.node}', received"
                f" as event {found.seq}; send the same name and payload again, or choose another id or key"
            )
        return True

    async def _event_of(self, execution: str, id: str) -> Event | None:
        after = 0
        while page := await self.stored.events(execution, after, PAGE):
            for event in page:
                if event.kind == "SignalReceived" and event.data and _decode(event.data).id == id:
                    return event
            after = page[-1].seq
        return None


def _check_name(name: str) -> None:
    if not 0 < len(name) <= LONGEST_SIGNAL_NAME:
        raise InvalidInput(f"a signal's name has 1 to {LONGEST_SIGNAL_NAME} characters")
    if request_in(name) is not None:
        raise InvalidInput(f"a signal's name does not begin with {REQUEST!r}: that is kept for requests")
    if "\0" in name:
        raise InvalidInput("a signal's name contains a NUL character, which some stores cannot hold")
