"""Signals from outside: kept by the ledger, once for each id, and compared when an id comes again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.script_bodies import succeeded
from dalsegno.core.values import encode_value
from dalsegno.engine.payload_schema import digest
from dalsegno.errors import Conflict, InvalidInput, KeyReused
from dalsegno.model.effect import PostSignal
from dalsegno.model.event import Event, NewEvent
from dalsegno.model.ids import new_execution_id
from dalsegno.model.transition import AlreadyApplied, Applied, Transition

if TYPE_CHECKING:
    from dalsegno.engine.client import Client

LONGEST_SIGNAL_NAME = 500
PAGE = 1000


class _Told(Struct, frozen=True):
    """What the event of a signal tells beside its payload."""

    id: str | None = None
    """As its sender named it; without that nobody can send it again."""
    digest: str | None = None


encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Told).decode


class Signalling:
    def __init__(self, client: Client) -> None:
        self.client = client

    async def send(self, execution: str, name: str, payload: Any, id: str | None) -> None:
        """Buffered, first in first out per name. The same ``id`` again changes nothing, also after the execution has
        ended; with another name or payload it is refused."""
        _check_name(name)
        kind = (await self.client.outline(execution)).kind
        if kind in ("task", "schedule"):
            raise Conflict(f"execution {execution} is a {kind}: it takes no signals; send it to its workflow")
        raw = encode_value(payload, "the signal's payload")
        transition = await self._posting(execution, name, raw, id)
        outcome = await self.client.committer.commit(transition, patient=False)
        if isinstance(outcome, Applied):
            return
        if id is not None and await self._came_before(execution, name, raw, id):
            return
        if not isinstance(outcome, AlreadyApplied):
            raise await self.client.refusal(outcome, execution, "signal")

    async def _posting(self, execution: str, name: str, raw: bytes, id: str | None) -> Transition:
        result = await self.client.results.of_raw(execution, raw, "the signal's payload")
        now = self.client.stack.ledger.now()
        told: dict[str, Any] = {"payload": Raw(raw)} if result.blob is None else {}
        if id is not None:
            told |= {"id": id, "digest": await digest(raw, self.client.offload)}
        event = NewEvent("SignalReceived", name, "", now, encode(told) if told else None)
        effect = PostSignal(id or new_execution_id(now), name, succeeded(0, result).data, event)
        return Transition(execution, (effect,))

    async def _came_before(self, execution: str, name: str, raw: bytes, id: str) -> bool:
        """Whether exactly this signal is on record; raises KeyReused where the id belongs to another one. The ledger
        forgets what a signal carried once it is taken: the history tells. Only repetitions pay for reading it."""
        found = await self._event_of(execution, id)
        if found is None:
            return False
        same = _decode(found.data or b"{}").digest == await digest(raw, self.client.offload)
        if found.node != name or not same:
            raise KeyReused(
                f"the id {id[:100]!r} was used for another signal to execution {execution}: '{found.node}', received"
                f" as event {found.seq}; send the same name and payload again, or choose another id or key"
            )
        return True

    async def _event_of(self, execution: str, id: str) -> Event | None:
        after = 0
        while page := await self.client.events(execution, after, PAGE):
            for event in page:
                if event.kind == "SignalReceived" and event.data and _decode(event.data).id == id:
                    return event
            after = page[-1].seq
        return None


def _check_name(name: str) -> None:
    if not 0 < len(name) <= LONGEST_SIGNAL_NAME:
        raise InvalidInput(f"a signal's name has 1 to {LONGEST_SIGNAL_NAME} characters")
    if "\0" in name:
        raise InvalidInput("a signal's name holds a NUL character, which not every store can hold")
