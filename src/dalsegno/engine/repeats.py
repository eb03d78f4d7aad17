"""A key that was used before: whether what is asked for now is what was asked for then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dalsegno.core.pending import Again, decode_start_token
from dalsegno.core.script_bodies import with_own_input
from dalsegno.core.told import Told
from dalsegno.engine.delays import begins_at
from dalsegno.engine.offload import Offload
from dalsegno.engine.payload_schema import digest
from dalsegno.engine.starting import StartOptions
from dalsegno.errors import KeyReused
from dalsegno.model.definition import read_version
from dalsegno.model.execution import ExecutionView, NewExecution
from dalsegno.model.ids import execution_id_for_key
from dalsegno.model.transition import Transition

if TYPE_CHECKING:
    from dalsegno.engine.client import Client

encode = msgspec.json.Encoder(order="deterministic").encode


EMPTY = b"{}"
SAME_MOMENT = 0.001
"""Seconds; a store may round a time."""


async def used_before(client: Client, workflow: str, key: str | None) -> ExecutionView | None:
    """The execution that was started or submitted with this key."""
    if key is None:
        return None
    found = await client.stack.archive.execution(execution_id_for_key(workflow, key))
    return with_own_input(found) if found is not None else None


async def check_same_start(
    client: Client, view: ExecutionView, payload: Any, options: StartOptions, definition: str | None = None
) -> None:
    """Of an execution that was started or submitted with a key: raises KeyReused unless the same is asked for now.
    ``definition`` is the content hash of one that came with the call. A version counts if it is a number: an alias,
    and the current version, may mean another one by now, and a call that is repeated is still the same."""
    first = await client.events(view.id, 0, 1)
    told = msgspec.json.decode(first[0].data, type=Told) if first and first[0].data is not None else None
    if definition is not None and definition != view.definition:
        raise _reused("another definition", view)
    version = read_version(options.version)
    if isinstance(version, int) and version != view.version:
        raise _reused(f"version {view.version}, not {version}", view)
    if told is not None and not _same_moment(told.starts_at, options, view.created_at):
        raise _reused("another 'delay' or 'start_at'", view)
    # The input it was created with counts: whoever triggered it may have given it another one since.
    known = [view.input] if told is None else [view.input, bytes(told.input)]
    if not await _is_among(encode(payload), known, client.offload):
        raise _reused("another input", view)


def _same_moment(told: float | None, options: StartOptions, created_at: float) -> bool:
    asked = begins_at(options.delay, options.start_at, created_at)
    if told is None or asked is None:
        return told is asked
    return abs(told - asked) < SAME_MOMENT


def _reused(other: str, view: ExecutionView) -> KeyReused:
    return KeyReused(
        f"this key was used with {other}: it belongs to execution {view.id} of '{view.workflow}';"
        " send the same again, or choose another key"
    )


async def _is_among(asked: bytes, known: Sequence[bytes], offload: Offload) -> bool:
    """The order of keys does not matter, and no input is an empty one."""
    wanted, *others = (EMPTY if each == b"null" else each for each in (asked, *known))
    if wanted in others:
        return True
    found = await digest(wanted, offload)
    return any([found == await digest(each, offload) for each in others])


async def check_same_rerun(client: Client, new: NewExecution, again: Again, planned: Transition) -> None:
    """Of an execution that was made by a retry or rerun with a key. Where it starts and what was edited is told by its
    first event, or, while it stands in line, by the token that will begin it."""
    view = await client.outline(new.id)
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
