"""Starts that bring their definition along: it is stored when everything about the start is in order, not before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeAlias

from dalsegno.engine.definitions import Program
from dalsegno.engine.repeats import check_same_start, used_before
from dalsegno.engine.scripting.programs import ScriptProgram
from dalsegno.engine.scripting.sources import definition_hash
from dalsegno.engine.starting import Started, StartOptions
from dalsegno.graph.build import Compiled
from dalsegno.model.execution import NewExecution
from dalsegno.model.ids import execution_id_for_key
from dalsegno.model.transition import Transition
from dalsegno.server.access import Caller
from dalsegno.server.aside import aside
from dalsegno.server.deploying import compile_inline, name_of, store
from dalsegno.server.office import Office
from dalsegno.server.repeating import starter_of

Plan: TypeAlias = Callable[
    [Program | ScriptProgram, Any, StartOptions], Awaitable[tuple[NewExecution, Transition]]
]
"""What a start, or a submission, checks and leads to."""


async def start_inline(
    office: Office,
    caller: Caller,
    given: dict[str, Any] | str,
    payload: Any,
    options: StartOptions,
    plan: Plan,
) -> Started:
    """With a key that was used before, its execution, and nothing is stored; with such a key and anything else than
    was asked for then, KeyReused."""
    client = office.client
    checked = await aside(compile_inline, office, given)
    known = await used_before(client, name_of(checked), options.idempotency_key)
    content = checked.hash if isinstance(checked, Compiled) else definition_hash(checked)
    if known is not None:
        await check_same_start(client, known, payload, options, content)
        return Started(known.id, is_new=False)
    options = await counted_options(office, caller, name_of(checked), options)
    await plan(client.definitions.provisional(checked), payload, options)
    definition = await store(office, checked, given if isinstance(given, str) else None)
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
