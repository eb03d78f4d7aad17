"""Results of workers of other programs, as they arrive over a broker: taken in, late, or dead letters."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Callable

from dalsegno.core.foreign_tasks import LARGEST_RESULT, BadResult, Result, read_result, unpacked_result
from dalsegno.engine.remote.answers import Answers
from dalsegno.engine.remote.sessions import RemoteLeases, parts_of
from dalsegno.engine.remote.task_proxy import Answer
from dalsegno.engine.subprocesses.examination import value_of
from dalsegno.engine.subprocesses.job_pool import Offload, OffloadLimits, Requester, requester
from dalsegno.engine.worker.directory import remote_worker_of
from dalsegno.errors import LeaseLost, NotFound, OperatorError
from dalsegno.ports.archive import Archive
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.task_transport import ForeignResult, Settlement

logger = logging.getLogger("dalsegno.remote")

INLINE_BYTES = 65_536
"""Bytes of a result that is read in the event loop; larger ones are read in a process."""
APART = OffloadLimits(processes=1, seconds=120.0, wait_seconds=None, queue=sys.maxsize)
"""A process for results alone. It runs with low priority, so a busy machine may take long; a result that is not read in
time is tried again.
"""
BAD_RESULT, UNKNOWN_TASK, INTERNAL = "BAD_RESULT", "UNKNOWN_TASK", "INTERNAL"
"""Codes of dead letters."""
PAUSE = 1.0
"""Seconds between two tries."""
MOST_TRIES = 3


class ForeignResults:
    """Settles results. ``counts``: results by verdict, and losses that a worker reported."""

    def __init__(
        self,
        ledger: Ledger,
        archive: Archive,
        answers: Answers,
        leases: RemoteLeases,
        answered: Callable[[str], None],
        lost: Callable[[str], None],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._ledger = ledger
        self._archive = archive
        self._answers = answers
        self._leases = leases
        self._offload = Offload(APART)
        self._answered = answered
        self._lost = lost

    async def settle(self, arrived: ForeignResult) -> Settlement:
        """Commit the step that a result causes. The first result for a fence counts.

        While the store is away this waits. After ``MOST_TRIES`` internal errors the result is a dead letter.
        """
        settlement = await self._decide(arrived)
        self.counts[settlement.verdict] += 1
        if settlement.verdict == "unknown":
            logger.warning("a result in %s is a dead letter: %s", arrived.source, settlement.reason)
        return settlement

    async def _decide(self, arrived: ForeignResult) -> Settlement:
        tries = 0
        while True:
            try:
                return await self._settle(arrived)
            except OperatorError as error:
                logger.info("a result in %s waits (%s); trying again", arrived.source, error)
            except Exception as error:
                tries += 1
                logger.exception("a result in %s could not be taken in", arrived.source)
                if tries == MOST_TRIES:
                    return Settlement("unknown", f"an internal error: {error}", INTERNAL)
            await asyncio.sleep(PAUSE)

    async def _settle(self, arrived: ForeignResult) -> Settlement:
        try:
            result = await self._read(arrived.body)
            task, fence = (result.id, result.fence) if result.id else await self._find(result)
        except BadResult as error:
            return Settlement("unknown", str(error), BAD_RESULT)
        except NotFound as error:
            return Settlement("unknown", str(error), UNKNOWN_TASK)
        except LeaseLost:
            return Settlement("late")
        try:
            if result.is_loss:
                queue = await self._lose(task, fence)
                return Settlement("taken", queue=queue, id=task, fence=fence)
            settled = await self._answers.settle(task, fence, Answer(result.output, result.failure))
        except NotFound as error:
            return Settlement("unknown", str(error), UNKNOWN_TASK)
        except LeaseLost:
            return Settlement("late")
        self._answered(settled.queue)
        return Settlement("late" if settled.repeated else "taken", queue=settled.queue, id=task, fence=fence)

    async def _read(self, body: bytes) -> Result:
        if not INLINE_BYTES < len(body) <= LARGEST_RESULT:
            return read_result(body)
        requester.set(Requester("results"))
        return unpacked_result(value_of(await self._offload.large("result", body)))

    async def close(self) -> None:
        await self._offload.close()

    async def _lose(self, id: str, fence: int) -> str:
        """Hand a task out again that the broker gave to a second worker because the first one is gone."""
        execution, token = parts_of(id)
        held = self._answers.sessions.held(token)
        if held is None or held.lease.fence != fence:
            held = await self._answers.find(id, execution, token, fence)
        await self._leases.give_back([held], lost=True)
        self._lost(held.lease.queue)
        return held.lease.queue

    async def _find(self, result: Result) -> tuple[str, int]:
        """Return id and fence of the one task of a node that is handed out, for a result that names no id."""
        inspection = await self._ledger.inspect(result.execution)
        if inspection is None:
            if await self._archive.execution(result.execution) is None:
                raise NotFound(f"there is no execution {result.execution!r} in this store")
            raise LeaseLost(f"execution {result.execution} has ended")
        found = [
            token
            for token in inspection.tokens
            if token.node == result.node and token.state == "leased" and remote_worker_of(token.owner)
        ]
        if len(found) == 1:
            return f"{result.execution}.{found[0].id}", found[0].fence
        if not found:
            raise LeaseLost(f"no task of node '{result.node}' is handed out")
        raise BadResult(
            f"{len(found)} tasks of node '{result.node}' of execution {result.execution} are handed out, and the "
            "result names none of them; send 'id' and 'fence'"
        )
