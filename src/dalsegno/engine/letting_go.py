"""What becomes of a token that a worker does not bring to its end: it goes back, on to others, or is put off."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from dalsegno.core.script_tasks import is_put_off, put_off
from dalsegno.engine.committer import Committer
from dalsegno.engine.elsewhere import ComesBack, RunsElsewhere
from dalsegno.engine.outage import Pause
from dalsegno.engine.serving import Colleagues
from dalsegno.engine.troubles import Trouble
from dalsegno.errors import BadConfiguration, CodeMissing, InternalError, OperatorError, StoreLost
from dalsegno.model.token import Lease, python_queue, with_handed_over
from dalsegno.model.transition import Applied, Outcome, ReadyToken, Refused, Transition
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger

logger = logging.getLogger("dalsegno.worker")

BROKEN_PAUSE = 1.0
LONGEST_BROKEN_PAUSE = 60.0
SHORT_SLEEP = 0.1
"""Seconds in which a token that is put off and cannot sleep in the store takes up a slot."""
CANNOT_RUN_PAUSE = 2.0
LONGEST_PAUSE = 15.0
OFFERED_PAUSE = 0.25
LONGEST_OFFERED_PAUSE = 5.0
OFFERS_IN_A_ROW = 4
"""Somebody can run it, and only has to be quicker than this process the next time."""
REMEMBERED = 10_000
"""Tokens of which this process knows how often it has put them off."""
Announce: TypeAlias = Callable[[Sequence[ReadyToken]], Awaitable[None]]


class LettingGo:
    def __init__(self, ledger: Ledger, broker: Broker, committer: Committer, colleagues: Colleagues) -> None:
        self._ledger = ledger
        self._broker = broker
        self._committer = committer
        self.trouble: Callable[[Trouble], None] = lambda trouble: None
        """Told of every token that this process cannot run."""
        self._colleagues = colleagues
        self._put_offs = PutOffs()
        self._offers = PutOffs()
        self._breaks = PutOffs()

    def note_broken(self, lease: Lease, error: BaseException) -> None:
        """Not the node's failure (those are values) but ours. A store that is away is told without a traceback, and not
        for each token where it is known already."""
        is_bug = not isinstance(error, OperatorError)
        is_known = self._committer.outage.is_known or isinstance(error, StoreLost)
        logger.log(
            logging.ERROR if is_bug else logging.DEBUG if is_known else logging.WARNING,
            "step of token %s (node %s) of execution %s %s: %s",
            lease.token,
            lease.node,
            lease.execution,
            "broke" if is_bug else "is handed back",
            error,
            exc_info=error if is_bug else None,
        )
        times = self._breaks.count(lease)
        self._tell(lease, f"its step breaks: {error}", times)

    def _tell(self, lease: Lease, reason: str, times: int) -> None:
        self.trouble(Trouble("token", lease.token, lease.execution, reason, times, lease.attempt))

    async def give_back_broken(self, name: str, lease: Lease) -> None:
        """After a while, so that whatever is broken does not break at once again. At first another process may try;
        what broke before sleeps in the store, the longer the more often, and takes up no room here meanwhile."""
        times = self._breaks.times(lease)
        if times > 1 and await self._sleeps(lease, grown(BROKEN_PAUSE, times, LONGEST_BROKEN_PAUSE)):
            return
        await asyncio.sleep(BROKEN_PAUSE)
        await self.give_back(name, [lease])

    async def _sleeps(self, lease: Lease, pause: float) -> bool:
        """If the store takes that. What broke the step may break this, too, and the token must not stay leased then.
        One that would forget what has woken it sleeps here, and goes back."""
        if _would_forget(lease):
            await asyncio.sleep(pause)
            return False
        try:
            outcome = await self._committer.commit(put_off(lease, self._ledger.now() + pause))
        except StoreLost:
            return False
        except Exception:
            logger.exception("token %s of execution %s cannot be put off", lease.token, lease.execution)
            return False
        return isinstance(outcome, Applied)

    async def put_off(self, name: str, lease: Lease, pause: float) -> None:
        """It comes back after a while, here or elsewhere."""
        if _would_forget(lease):
            pause = min(pause, SHORT_SLEEP)  # in its slot; nothing of its workflow is claimed here meanwhile
        if not await self._sleeps(lease, pause):
            await self.give_back(name, [lease])

    def note_stored(self, step: Transition) -> None:
        """Whatever broke in its token before does so no more."""
        if step.token is not None and not is_put_off(step):
            self._breaks.forget(step.token)

    async def give_back(self, name: str, leases: Sequence[Lease]) -> None:
        """Until it is done: what is neither run nor handed back would stay leased for ever."""
        await self._release(name, leases, self._broker.announce)

    async def _release(self, name: str, leases: Sequence[Lease], announce: Announce) -> None:
        leases = with_handed_over(leases)
        ready = _ready(leases)
        outage, these_leases = self._committer.outage, object()
        pause = Pause(BROKEN_PAUSE, LONGEST_PAUSE)
        try:
            while True:
                try:
                    await self._ledger.release(name, leases)
                    await announce(ready)
                    outage.answered(these_leases)
                    return
                except StoreLost:
                    return  # the leases are lost with it
                except OperatorError as error:
                    what = f"{len(leases)} leases cannot be handed back: they wait for the store"
                    outage.failed(these_leases, what, error)
                await asyncio.sleep(pause.next())
        finally:
            outage.gave_up(these_leases)

    async def leave_to_others(self, lease: Lease, error: BadConfiguration | RunsElsewhere, name: str) -> None:
        """This process cannot run it, another one may; until then it must not stand in the way of others."""
        if isinstance(error, RunsElsewhere) and not isinstance(error, ComesBack):
            return await self._offer(lease, error, name)
        away = await self._passed_on(lease, error)
        if away is not None and isinstance(await self._committer.commit(away), Applied):
            return None
        if away is not None or not await self._sleeps(lease, self._put_off(lease, str(error))):
            await self.give_back(name, [lease])
        return None

    async def _offer(self, lease: Lease, error: RunsElsewhere, name: str) -> None:
        """To those who can run it, who are told; this process is not. Where it gets hold of it again all the same, it
        sleeps for a while before the next offer."""
        times = self._offers.count(lease)
        level = logging.INFO if times == 1 else logging.DEBUG
        logger.log(
            level, "token %s of execution %s is left to others: %s", lease.token, lease.execution, error
        )
        sleeps, in_a_row = divmod(times, OFFERS_IN_A_ROW)
        if in_a_row == 0:
            self._tell(lease, str(error), sleeps)
            if await self._sleeps(lease, grown(OFFERED_PAUSE, sleeps, LONGEST_OFFERED_PAUSE)):
                return
        await self._release(name, [lease], self._broker.offer)

    async def _passed_on(self, lease: Lease, error: BaseException) -> Transition | None:
        """A turn of a Python workflow goes to a worker that has its code, if any is known."""
        if not isinstance(error, CodeMissing) or lease.kind != "resume":
            return None
        queue = python_queue(error.module)
        if lease.queue == queue or not await self._is_served(queue):
            return None
        return put_off(lease, self._ledger.now(), queue=queue)

    async def _is_served(self, queue: str) -> bool:
        """As far as the store can be asked."""
        try:
            return await self._colleagues.any(lambda info: queue in info.queues)
        except OperatorError:
            return False

    def _put_off(self, lease: Lease, reason: str) -> float:
        """For how long: the longer the more often this process could not run it."""
        times = self._put_offs.count(lease)
        level = logging.WARNING if times == 1 else logging.DEBUG
        logger.log(level, "token %s of execution %s is put off: %s", lease.token, lease.execution, reason)
        self._tell(lease, reason, times)
        return grown(CANNOT_RUN_PAUSE, times, LONGEST_PAUSE)

    async def commit_failure(self, lease: Lease, failure: Transition) -> Outcome:
        """In place of a step that the store refuses. Where it refuses this as well, the token must not stay leased
        under a name that lives: it is put off, and shows among the dead letters."""
        outcome = await self._committer.commit(failure)
        if isinstance(outcome, Refused) and not _would_forget(lease):
            reason = f"the store refuses the step, and its failure too: {outcome.message}"
            due = self._ledger.now() + self._put_off(lease, reason)
            outcome = await self._committer.commit(put_off(lease, due))
        if isinstance(outcome, Refused):
            raise InternalError(f"the store refuses even to put off token {lease.token}: {outcome.message}")
        return outcome

    async def release_at_last(self, name: str, leases: Sequence[Lease]) -> None:
        """Once: a process that stops does not wait for a store that is away."""
        leases = with_handed_over(leases)
        try:
            await self._ledger.release(name, leases)
            await self._broker.offer(_ready(leases))
        except StoreLost:
            return
        except OperatorError as error:
            logger.warning(
                "%d leases of %s cannot be handed back (%s); they expire by themselves",
                len(leases),
                name,
                error,
            )


class PutOffs:
    """How often this process has put off the current attempt of each token. Not kept in the token: its attempts are
    those of its work, which its retries count, and here none was made."""

    def __init__(self) -> None:
        self._times: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """By token: the attempt, and how often."""

    def count(self, lease: Lease) -> int:
        """With this time. What was not put off for long is forgotten where there is much else."""
        times = self.times(lease) + 1
        self._times[lease.token] = lease.attempt, times
        self._times.move_to_end(lease.token)
        if len(self._times) > REMEMBERED:
            self._times.popitem(last=False)
        return times

    def times(self, lease: Lease) -> int:
        attempt, times = self._times.get(lease.token, (lease.attempt, 0))
        return times if attempt == lease.attempt else 0

    def forget(self, token: str) -> None:
        if self._times:  # as is rare: every step asks
            self._times.pop(token, None)


def _ready(leases: Sequence[Lease]) -> list[ReadyToken]:
    return [ReadyToken(lease.token, lease.execution, lease.queue, lease.priority) for lease in leases]


def _would_forget(lease: Lease) -> bool:
    """What a node waited for has come, and a token that sleeps again would take the end of that for the end of its
    patience. Those of scripts look for it themselves."""
    return lease.kind == "node" and lease.reason == "arrival"


def grown(first: float, times: int, longest: float) -> float:
    """A pause that is twice as long each time."""
    return min(first * 2.0 ** min(times - 1, 10), longest)
