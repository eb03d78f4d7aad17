"""Starts: of deployed workflows, of definitions that come with the request, and of a batch in one call.

A definition that comes with a start is stored only after the whole start has been checked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeAlias

from fastapi import Header, Response, status
from msgspec import Raw

from dalsegno.engine.definitions import Program
from dalsegno.engine.scripts.programs import ScriptProgram
from dalsegno.engine.starting.idempotency import check_same_start, used_before
from dalsegno.engine.starting.start import Started, StartOptions
from dalsegno.engine.tracing import TRACEPARENT, read_traceparent
from dalsegno.errors import DalSegnoError, InvalidInput
from dalsegno.model.definition import VERSION_SIGN, Definition, Version, parse_target, read_version
from dalsegno.model.execution import NewExecution
from dalsegno.model.ids import execution_id_for_key
from dalsegno.model.transition import Transition
from dalsegno.server.auth.authentication import Caller
from dalsegno.server.executions.definitions import prepare_inline, store
from dalsegno.server.http import deadlines
from dalsegno.server.http.problems import document_of, internal_error, retry_after
from dalsegno.server.http.responses import whole
from dalsegno.server.schemas.executions import BatchResult, BatchStart, Execution, StartFields, StartRequest
from dalsegno.server.services import ServerServices

CHUNK = 100
"""Starts of a batch that are processed at a time; the store commits them together."""

USED_BEFORE: dict[int | str, dict[str, Any]] = {
    200: {"model": Execution, "description": "The key was used before: that execution."}
}

TraceParent = Annotated[
    str | None,
    Header(max_length=200, description="W3C trace context; the execution's trace links to it, by a tag."),
]

Plan: TypeAlias = Callable[
    [Program | ScriptProgram, Any, StartOptions], Awaitable[tuple[NewExecution, Transition]]
]
"""The check and planning of a start or submission."""


def options_of(request: StartFields, key: str | None, traceparent: str | None) -> StartOptions:
    return StartOptions(
        None, key, traced(request.tags, traceparent), request.priority, request.delay, request.start_at
    )


def traced(tags: Mapping[str, str], header: str | None) -> dict[str, str]:
    """Add the tag that the tracing of every process reads. An invalid trace context is ignored: it is no reason to
    refuse a start."""
    if header is None or read_traceparent(header) is None:
        return dict(tags)
    return {TRACEPARENT: header, **tags}


def plan_of(services: ServerServices, request: StartFields) -> Plan:
    """Return the plan of a start or submission."""
    return services.client.pending.planned if request.pending else services.client.launcher.planned


async def start_named(
    services: ServerServices, caller: Caller, request: StartRequest | BatchStart, options: StartOptions
) -> Started:
    """Start a deployed workflow. Raises KeyReused if the idempotency key was used for a different request."""
    client = services.client
    name, version = target_of(request.workflow, request.version)
    services.usage.count_starts(caller)
    program = await client.definitions.by_name(name, version)
    options = await counted_options(services, caller, name, replace(options, version=version))
    started = await create_planned(services, program, request.input, options, plan_of(services, request))
    if not started.is_new:
        await check_same_start(client, await client.status(started.execution), request.input, options)
    return started


def target_of(workflow: str | None, given: int | str | None) -> tuple[str, Version]:
    """Return the workflow and its version. Raises InvalidInput if the request contradicts itself."""
    if workflow is None:
        raise InvalidInput("/body/workflow: name the workflow to start, or give its 'definition'")
    name, named = parse_target(workflow)
    version = read_version(given)
    if VERSION_SIGN in workflow and given is not None and named != version:
        raise InvalidInput(
            f"/body/version: 'workflow' names {workflow[:300]!r}, and 'version' {given!r};"
            " name the version in one of them"
        )
    return name, version if named is None else named


async def start_inline(
    services: ServerServices,
    caller: Caller,
    given: Raw | str,
    payload: Any,
    options: StartOptions,
    plan: Plan,
) -> Started:
    """Start an execution from a definition in the request. A repeated idempotency key returns the earlier execution
    and stores nothing; the same key with a different request raises KeyReused."""
    client = services.client
    checked = await prepare_inline(services, given)
    content = checked.hash
    known = await used_before(client, checked.name, options.idempotency_key)
    if known is not None:
        await check_same_start(client, known, payload, options, content)
        return Started(known.id, is_new=False)
    options = await counted_options(services, caller, checked.name, options)
    unstored = Definition(checked.name, 0, checked.hash, checked.kind, checked.source)
    provisional = await client.definitions.provisional(unstored)
    await plan(provisional, payload, options)
    definition = await store(services, caller, checked, given if isinstance(given, str) else None)
    client.definitions.keep(definition, provisional)
    program = await client.definitions.by_name(definition.name, definition.version)
    started = await create_planned(services, program, payload, options, plan)
    if not started.is_new:  # a concurrent call with the same key was first
        view = await client.status(started.execution)
        await check_same_start(client, view, payload, options, content)
    return started


async def counted_options(
    services: ServerServices, caller: Caller, name: str, options: StartOptions
) -> StartOptions:
    """Return the options with the key that the execution is counted for. An earlier start with the same idempotency
    key is returned even if the quota is exhausted."""
    key = options.idempotency_key
    made = execution_id_for_key(name, key) if key is not None else None
    return replace(
        options, starter=await services.usage.starter_unless(services.client.stack.archive, caller, made)
    )


async def create_planned(
    services: ServerServices,
    program: Program | ScriptProgram,
    payload: Any,
    options: StartOptions,
    plan: Plan,
) -> Started:
    new, transition = await plan(program, payload, options)
    return await services.client.launcher.create(new, transition, options)


async def answer_for(services: ServerServices, started: Started, response: Response) -> Execution:
    """Return the execution with status 201, or 200 if an earlier call created it."""
    if not started.is_new:
        response.status_code = status.HTTP_200_OK
    response.headers["Location"] = f"/v1/executions/{started.execution}"
    if started.begun is not None:
        return Execution.begun(started.begun)
    return Execution.of(await whole(services, started.execution))


# -- batches --------------------------------------------------------------------------------------------------


async def run_batch(
    services: ServerServices, caller: Caller, starts: Sequence[BatchStart], traceparent: str | None
) -> list[BatchResult]:
    """Start a batch. Return the result of each start. Of several starts with the same idempotency key, the first
    one wins."""
    results: list[BatchResult] = []
    for first in range(0, len(starts), CHUNK):
        chunk = starts[first : first + CHUNK]
        results += await asyncio.gather(*(_start(services, caller, each, traceparent) for each in chunk))
        deadlines.allow()  # each chunk gets its own deadline
    return results


async def _start(
    services: ServerServices, caller: Caller, start: BatchStart, traceparent: str | None
) -> BatchResult:
    try:
        options = options_of(start, start.idempotency_key, traceparent)
        started = await start_named(services, caller, start, options)
        return BatchResult(id=started.execution, new=started.is_new)
    except DalSegnoError as error:
        return _refused(error)
    except Exception as error:  # noqa: BLE001 - a bug fails one start, not the others
        return _refused(internal_error("a start of a batch", error))


def _refused(error: DalSegnoError) -> BatchResult:
    return BatchResult(problem=document_of(error), retry_after=retry_after(error))
