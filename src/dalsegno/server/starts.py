"""Starts of deployed workflows: one, or several in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from dalsegno.engine.repeats import check_same_start
from dalsegno.engine.starting import Started, StartOptions
from dalsegno.errors import DalSegnoError, InvalidInput
from dalsegno.model.definition import VERSION_SIGN, Version, parse_target, read_version
from dalsegno.server import deadlines
from dalsegno.server.access import Caller
from dalsegno.server.inline import Plan, counted_options, create_planned
from dalsegno.server.office import Office
from dalsegno.server.problems import document_of, internal_error, retry_after
from dalsegno.server.schemas.executions import BatchResult, BatchStart, StartFields, StartRequest
from dalsegno.server.tracing import traced

CHUNK = 100
"""Starts of a batch that are worked on at a time; the store commits them together."""


def options_of(request: StartFields, key: str | None, traceparent: str | None) -> StartOptions:
    return StartOptions(
        None, key, traced(request.tags, traceparent), request.priority, request.delay, request.start_at
    )


def plan_of(office: Office, request: StartFields) -> Plan:
    """How a start, or a submission, is planned."""
    return office.client.pending.planned if request.pending else office.client.launcher.planned


async def start_named(
    office: Office, caller: Caller, request: StartRequest | BatchStart, options: StartOptions
) -> Started:
    """Starts a deployed workflow. With a key that was used before for something else, KeyReused."""
    client = office.client
    name, version = target_of(request.workflow, request.version)
    office.usage.count_starts(caller)
    program = await client.definitions.by_name(name, version)
    options = await counted_options(office, caller, name, replace(options, version=version))
    started = await create_planned(office, program, request.input, options, plan_of(office, request))
    if not started.is_new:
        await check_same_start(client, await client.status(started.execution), request.input, options)
    return started


def target_of(workflow: str | None, given: int | str | None) -> tuple[str, Version]:
    """Which workflow, and which of its versions; raises InvalidInput where the request says two things at once."""
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


# -- batches --------------------------------------------------------------------------------------------------


async def run_batch(
    office: Office, caller: Caller, starts: Sequence[BatchStart], traceparent: str | None
) -> list[BatchResult]:
    """What each start led to. Of starts with the same key in one batch, the first one wins."""
    results: list[BatchResult] = []
    for first in range(0, len(starts), CHUNK):
        chunk = starts[first : first + CHUNK]
        results += await asyncio.gather(*(_start(office, caller, each, traceparent) for each in chunk))
        deadlines.allow()  # each chunk is a work of its own
    return results


async def _start(office: Office, caller: Caller, start: BatchStart, traceparent: str | None) -> BatchResult:
    try:
        options = options_of(start, start.idempotency_key, traceparent)
        started = await start_named(office, caller, start, options)
        return BatchResult(id=started.execution, new=started.is_new)
    except DalSegnoError as error:
        return _refused(error)
    except Exception as error:  # noqa: BLE001 - a bug of ours fails one start, not those beside it
        return _refused(internal_error("a start of a batch", error))


def _refused(error: DalSegnoError) -> BatchResult:
    return BatchResult(problem=document_of(error), retry_after=retry_after(error))
