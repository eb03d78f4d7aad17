"""Starts that bring their definition along: it is stored when everything about the start is in order, not before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeAlias

from msgspec import Raw

from dalsegno.engine.definitions import Program
from dalsegno.engine.repeats import check_same_start, used_before
from dalsegno.engine.scripting.programs import ScriptProgram
from dalsegno.engine.starting import Started, StartOptions
from dalsegno.model.definition import Definition
from dalsegno.model.execution import NewExecution
from dalsegno.model.ids import execution_id_for_key
from dalsegno.model.transition import Transition
from dalsegno.server.access import Caller
from dalsegno.server.deploying import prepare_inline, store
from dalsegno.server.office import Office
from dalsegno.server.repeating import starter_of

Plan: TypeAlias = Callable[
    [Program | ScriptProgram, Any, StartOptions], Awaitable[tuple[NewExecution, Transition]]
]
"""What a start, or a submission, checks and leads to."""


async def start_inline(
    office: Office,
    caller: Caller,
    given: Raw | str,
    payload: Any,
    options: StartOptions,
    plan: Plan,
) -> Started:
    """With a key that was used before, its execution, and nothing is stored; with such a key and anything else than
    was asked for then, KeyReused."""
    client = office.client
    checked = await prepare_inline(office, given)
    content = checked.hash
    known = await used_before(client, checked.name, options.idempotency_key)
    if known is not None:
        await check_same_start(client, known, payload, options, content)
        return Started(known.id, is_new=False)
    options = await counted_options(office, caller, checked.name, options)
    unstored = Definition(checked.name, 0, checked.hash, checked.kind, checked.source)
    provisional = await client.definitions.provisional(unstored)
    await plan(provisional, payload, options)
    definition = await store(office, caller, checked, given if isinstance(given, str) else None)
    client.definitions.keep(definition, provisional)
    program = await client.definitions.by_name(definition.name, definition.version)
    started = await create_planned(office, program, payload, options, plan)
    if not started.is_new:  # somebody with the same key was faster
        view = await client.status(started.execution)
        await check_same_start(client, view, payload, options, content)
    return started


async def counted_options(office: Office, caller: Caller, name: str, options: StartOptions) -> StartOptions:
    """With the key for which the execution counts as stored. A start that was made before is found again although that
    quota is used up."""
    key = options.idempotency_key
    made = execution_id_for_key(name, key) if key is not None else None
    return replace(options, starter=await starter_of(office, caller, made))


async def create_planned(
    office: Office, program: Program | ScriptProgram, payload: Any, options: StartOptions, plan: Plan
) -> Started:
    new, transition = await plan(program, payload, options)
    return await office.client.launcher.create(new, transition, options)
