"""Idempotency keys: comparison of a request with the earlier one that used the same key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dalsegno.core.history import StartFacts
from dalsegno.core.pending import Again, decode_start_token
from dalsegno.core.scripts.branch import BRANCH, decode_branch
from dalsegno.engine.executions import StoredExecutions
from dalsegno.engine.journal.branches import TurnAsked
from dalsegno.engine.starting.start import StartOptions, begins_at
from dalsegno.engine.subprocesses.job_pool import Offload, digest
from dalsegno.errors import KeyReused
from dalsegno.model.definition import Version, read_version
from dalsegno.model.execution import ExecutionView, NewExecution
from dalsegno.model.ids import execution_id_for_key
from dalsegno.model.transition import Transition

encode = msgspec.json.Encoder(order="deterministic").encode


EMPTY = b"{}"
SAME_MOMENT = 0.001
"""Tolerance in seconds: a store may round times."""


async def used_before(executions: StoredExecutions, workflow: str, key: str | None) -> ExecutionView | None:
    """Return the execution that was started or submitted with this key."""
    if key is None:
        return None
    found = await executions.stack.archive.execution(execution_id_for_key(workflow, key))
    return await executions.inputs.with_own_input(found) if found is not None else None


async def check_same_start(
    executions: StoredExecutions,
    view: ExecutionView,
    payload: Any,
    options: StartOptions,
    definition: str | None = None,
) -> None:
    """Raise KeyReused unless a start with a used key requests the same as the first one.

    ``definition`` is the content hash of a definition that came with the call. A version is compared only if it is a
    number: an alias, and the current version, may mean another version by now, and a repeated call is still the same.
    """
    first = await executions.events(view.id, 0, 1)
    stored = (
        msgspec.json.decode(first[0].data, type=StartFacts) if first and first[0].data is not None else None
    )
    if definition is not None and definition != view.definition:
        raise _reused("another definition", view)
    version = read_version(options.version)
    if isinstance(version, int) and version != view.version:
        raise _reused(f"version {view.version}, not {version}", view)
    if stored is not None and not _same_moment(stored.starts_at, options, view.created_at):
        raise _reused("another 'delay' or 'start_at'", view)
    # Compare with the input it was created with: a trigger may have replaced the input since.
    known = [view.input] if stored is None else [view.input, bytes(stored.input)]
    if not await _is_among(encode(payload), known, executions.offload):
        raise _reused("another input", view)


def _same_moment(stored_at: float | None, options: StartOptions, created_at: float) -> bool:
    asked = begins_at(options.delay, options.start_at, created_at)
    if stored_at is None or asked is None:
        return stored_at is asked
    return abs(stored_at - asked) < SAME_MOMENT


def _reused(other: str, view: ExecutionView) -> KeyReused:
    return KeyReused(
        f"this key was used with {other}: it belongs to execution {view.id} of '{view.workflow}';"
        " send the same again, or choose another key"
    )


async def _is_among(asked: bytes, known: Sequence[bytes], offload: Offload) -> bool:
    """Return True if the input equals one of the known ones. The order of keys does not matter, and null equals an
    empty object.
    """
    wanted, *others = (EMPTY if each == b"null" else each for each in (asked, *known))
    if wanted in others:
        return True
    found = await digest(wanted, offload)
    return any([found == await digest(each, offload) for each in others])


def check_same_version(made: ExecutionView, version: Version) -> None:
    """Raise KeyReused unless a retry with a used key asks for the version of the first one. An alias, and the current
    version, may mean another version by now.
    """
    asked = read_version(version)
    if isinstance(asked, int) and asked != made.version:
        raise _reused(f"version {made.version}, not {asked}", made)


async def check_same_branch(executions: StoredExecutions, made: ExecutionView, turn: TurnAsked) -> None:
    """Raise KeyReused unless a rerun at a turn with a used key requests the same as the first one."""
    ledger = executions.stack.ledger
    data = (await ledger.outputs(made.id, [BRANCH])).get(BRANCH)
    if data is None or bytes(decode_branch(data).asked) != turn.encoded():
        raise _reused("another turn, other variables or other answers", made)


async def check_same_rerun(
    executions: StoredExecutions, new: NewExecution, again: Again, planned: Transition
) -> None:
    """Raise KeyReused unless a retry or rerun with a used key requests the same as the first one. Its start nodes and
    edits are in its first events or, while it waits for its limit, in its start token.
    """
    view = await executions.outline(new.id)
    if view.relation == new.relation and await _starts_as(executions, view, again, planned):
        return
    raise KeyReused(
        f"this key was used for another {view.relation} of execution {view.parent}, with other nodes or another"
        f" context: that is execution {view.id}; ask for the same again, or choose another key"
    )


async def _starts_as(
    executions: StoredExecutions, view: ExecutionView, again: Again, planned: Transition
) -> bool:
    events = await executions.events(view.id, 0, 10)
    stored = next((each.data for each in events if each.kind == "ExecutionStarted"), None)
    if stored is not None:
        return any(each.kind == "ExecutionStarted" and each.data == stored for each in planned.events)
    inspection = await executions.stack.ledger.inspect(view.id)
    tokens = inspection.tokens if inspection is not None else ()
    waiting = [decode_start_token(each.data).again for each in tokens if each.kind == "start"]
    return not waiting or encode(waiting[0]) == encode(again)
