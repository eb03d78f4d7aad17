"""Beginning what was submitted: the step of a token whose time has come."""

from __future__ import annotations

import logging

from dalsegno.core.pending import StartToken, as_submitted, begin_in_time, decode_start_token, never_begun
from dalsegno.core.script_tasks import nothing
from dalsegno.engine.definitions import Definitions
from dalsegno.engine.lineage import Past
from dalsegno.engine.rerun import rerun_transition
from dalsegno.engine.starting import limited, start_task_transition, start_transition
from dalsegno.errors import Conflict, NotFound
from dalsegno.lang.effects import ErrorValue
from dalsegno.model.execution import NewExecution
from dalsegno.model.token import Lease
from dalsegno.model.transition import Transition

logger = logging.getLogger("dalsegno.beginning")


async def begin_step(past: Past, definitions: Definitions, lease: Lease, now: float) -> Transition:
    """For a token of kind ``start``, however often it was lost before: it runs nobody's code."""
    view = await past.archive.execution(lease.execution)
    if view is None:
        return nothing(lease)  # removed meanwhile; the commit finds that out
    new = as_submitted(view)
    try:
        started = await first_transition(past, definitions, new, now, decode_start_token(lease.data))
    except (NotFound, Conflict) as error:
        logger.error("execution %s cannot begin: %s", lease.execution, error)
        return never_begun(lease, ErrorValue("NOT_FOUND", str(error), "NotFound"), now)
    return begin_in_time(lease, started)


async def first_transition(
    past: Past, definitions: Definitions, new: NewExecution, now: float, body: StartToken
) -> Transition:
    """What an ordinary start, retry or rerun would have committed."""
    if new.kind == "task":
        return start_task_transition(new, now, body.queue, limited(body.concurrency))
    if body.again is not None:
        return await rerun_transition(past, await definitions.by_hash(new.definition), new, body.again, now)
    return start_transition(await definitions.any_by_hash(new.definition), new, now)
