"""A key that was used before: whether what is asked for now is what was asked for then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from dalsegno.core.pending import Again, decode_start_token
from dalsegno.errors import KeyReused
from dalsegno.model.execution import ExecutionView, NewExecution
from dalsegno.model.transition import Transition

if TYPE_CHECKING:
    from dalsegno.engine.client import Client

encode = msgspec.json.Encoder(order="deterministic").encode


async def check_same_input(client: Client, view: ExecutionView, payload: Any) -> None:
    """Of an execution that was started or submitted with a key. The input it was created with counts: whoever triggered
    it may have given it another one since."""
    asked = _in_order(encode(payload))
    if asked == _in_order(view.input):
        return
    first = await client.events(view.id, 0, 1)
    told = first[0].data if first else None
    if told is not None and asked == _in_order(msgspec.json.decode(told, type=_Told).input):
        return
    raise KeyReused(
        f"this key was used with another input: it belongs to execution {view.id} of '{view.workflow}';"
        " send that input again, or choose another key"
    )


class _Told(Struct):
    """The first event of an execution, whether it was submitted or started at once."""

    input: Raw


def _in_order(raw: bytes | Raw) -> bytes:
    """Comparable: the order of keys says nothing, and no input is an empty one."""
    found = msgspec.json.decode(raw)
    return encode(found if found is not None else {})


async def check_same_rerun(client: Client, new: NewExecution, again: Again, planned: Transition) -> None:
    """Of an execution that was made by a retry or rerun with a key. Where it starts and what was edited is told by its
    first event, or, while it stands in line, by the token that will begin it."""
    view = await client.status(new.id)
    if view.relation == new.relation and await _starts_as(client, view, again, planned):
        return
    raise KeyReused(
        f"this key was used for another {view.relation} of execution {view.parent}, with other nodes or another"
        f" context: that is execution {view.id}; ask for the same again, or choose another key"
    )


async def _starts_as(client: Client, view: ExecutionView, again: Again, planned: Transition) -> bool:
    events = await client.events(view.id, 0, 10)
    told = next((each.data for each in events if each.kind == "ExecutionStarted"), None)
    if told is not None:
        return any(each.kind == "ExecutionStarted" and each.data == told for each in planned.events)
    inspection = await client.stack.ledger.inspect(view.id)
    tokens = inspection.tokens if inspection is not None else ()
    waiting = [decode_start_token(each.data).again for each in tokens if each.kind == "start"]
    return not waiting or encode(waiting[0]) == encode(again)
