"""What becomes of a token that a worker does not bring to its end: it goes back, on to others, or is put off."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec

from dalsegno.core.script_tasks import put_off
from dalsegno.engine.committer import Committer
from dalsegno.engine.serving import ServedQueues
from dalsegno.engine.troubles import Trouble
from dalsegno.errors import BadConfiguration, CodeMissing, InternalError, OperatorError
from dalsegno.model.ids import task_execution_id
from dalsegno.model.token import Lease, python_queue
from dalsegno.model.transition import Outcome, ReadyToken, Refused, Transition
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger

logger = logging.getLogger("dalsegno.worker")

BROKEN_PAUSE = 1.0
CANNOT_RUN_PAUSE = 2.0
LONGEST_PAUSE = 15.0
REMEMBERED = 10_000
"""Tokens of which this process knows how often it has put them off."""


class LettingGo:
    def __init__(self, ledger: Ledger, broker: Broker, committer: Committer) -> None:
        self._ledger = ledger
        self._broker = broker
        self._committer = committer
        self.trouble: Callable[[Trouble], None] = lambda trouble: None
        """Told of every token that this process cannot run."""
        self._served = ServedQueues(ledger)
        self._put_offs = PutOffs()

    async def give_back_broken(self, name: str, lease: Lease) -> None:
        """After a while, so that whatever is broken does not break at once again."""
        await asyncio.sleep(BROKEN_PAUSE)
        await self.give_back(name, [lease])

    async def give_back(self, name: str, leases: Sequence[Lease]) -> None:
        """Until it is done: what is neither run nor handed back would stay leased for ever."""
        leases = _also_handed_over(leases)
        ready = [ReadyToken(lease.token, lease.execution, lease.queue, lease.priority) for lease in leases]
        pause = BROKEN_PAUSE
        while True:
            try:
                await self._ledger.release(name, leases)
                await self._broker.announce(ready)
                return
            except OperatorError as error:
                logger.warning("%d leases cannot be handed back (%s); trying again", len(leases), error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def leave_to_others(self, lease: Lease, error: BadConfiguration, name: str) -> None:
        """This process cannot run it, another one may; until then it must not stand in the way of others."""
        away = await self._passed_on(lease, error) or self._put_off(lease, str(error))
        if isinstance(await self._committer.commit(away), Refused):
            await self.give_back(name, [lease])

    async def _passed_on(self, lease: Lease, error: BadConfiguration) -> Transition | None:
        """A turn of a Python workflow goes to a worker that has its code, if any is known."""
        if not isinstance(error, CodeMissing) or lease.kind != "resume":
            return None
        queue = python_queue(error.module)
        if lease.queue == queue or queue not in await self._served.look():
            return None
        return put_off(lease, self._ledger.now(), queue=queue)

    def _put_off(self, lease: Lease, reason: str) -> Transition:
        """For a while, the longer the more often this process could not run it."""
        logger.warning("token %s of execution %s is put off: %s", lease.token, lease.execution, reason)
        times = self._put_offs.count(lease)
        self.trouble(Trouble("token", lease.token, lease.execution, reason, times))
        pause = min(CANNOT_RUN_PAUSE * 2 ** min(times - 1, 10), LONGEST_PAUSE)
        return put_off(lease, self._ledger.now() + pause)

    async def commit_failure(self, lease: Lease, failure: Transition) -> Outcome:
        """In place of a step that the store refuses. Where it refuses this as well, the token must not stay leased
        under a name that lives: it is put off, and shows among the dead letters."""
        outcome = await self._committer.commit(failure)
        if isinstance(outcome, Refused):
            reason = f"the store refuses the step, and its failure too: {outcome.message}"
            outcome = await self._committer.commit(self._put_off(lease, reason))
        if isinstance(outcome, Refused):
            raise InternalError(f"the store refuses even to put off token {lease.token}: {outcome.message}")
        return outcome

    async def release_at_last(self, name: str, leases: Sequence[Lease]) -> None:
        """Once: a process that stops does not wait for a store that is away."""
        leases = _also_handed_over(leases)
        try:
            await self._ledger.release(name, leases)
        except OperatorError as error:
            logger.warning(
                "%d leases of %s cannot be handed back (%s); they expire by themselves",
                len(leases),
                name,
                error,
            )


class PutOffs:
    """How often this process has put off each attempt of a token. Not kept in the token: its attempts are those of its
    work, which its retries count, and here none was made."""

    def __init__(self) -> None:
        self._times: OrderedDict[tuple[str, int], int] = OrderedDict()

    def count(self, lease: Lease) -> int:
        """With this time. What was not put off for long is forgotten where there is much else."""
        key = (lease.token, lease.attempt)
        times = self._times[key] = self._times.pop(key, 0) + 1
        if len(self._times) > REMEMBERED:
            self._times.popitem(last=False)
        return times


def _also_handed_over(leases: Sequence[Lease]) -> list[Lease]:
    """A task whose script has ended meanwhile is an execution of its own, with the same token and the same lease."""
    heirs = [
        msgspec.structs.replace(lease, execution=task_execution_id(lease.token))
        for lease in leases
        if lease.kind == "task" and lease.execution_kind != "task"
    ]
    return [*leases, *heirs]
