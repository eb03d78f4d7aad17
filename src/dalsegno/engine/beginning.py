"""Beginning what was submitted: the step of a token whose time has come."""

from __future__ import annotations

import logging

from dalsegno.core.pending import StartToken, as_submitted, begin_in_time, decode_start_token, never_begun
from dalsegno.core.script_tasks import nothing
from dalsegno.engine.definitions import Definitions
from dalsegno.engine.starting import limited, start_task_transition, start_transition
from dalsegno.errors import NotFound
from dalsegno.lang.effects import ErrorValue
from dalsegno.model.execution import NewExecution
from dalsegno.model.token import Lease
from dalsegno.model.transition import Transition
from dalsegno.ports.archive import Archive

logger = logging.getLogger("dalsegno.beginning")


async def begin_step(archive: Archive, definitions: Definitions, lease: Lease, now: float) -> Transition:
    """For a token of kind ``start``, however often it was lost before: it runs nobody's code."""
    view = await archive.execution(lease.execution)
    if view is None:
        return nothing(lease)  # removed meanwhile; the commit finds that out
    new = as_submitted(view)
    try:
        started = await first_transition(definitions, new, now, decode_start_token(lease.data))
    except NotFound as error:
        logger.error("execution %s cannot begin: %s", lease.execution, error)
        return never_begun(lease, ErrorValue("NOT_FOUND", str(error), "NotFound"), now)
    return begin_in_time(lease, started)


async def first_transition(
    definitions: Definitions, new: NewExecution, now: float, body: StartToken
) -> Transition:
    """What an ordinary start would have committed. ``body`` is for a task."""
    if new.kind == "task":
        return start_task_transition(new, now, body.queue, limited(body.concurrency))
    return start_transition(await definitions.any_by_hash(new.definition), new, now)
