"""Tokens of a worker: which spawned ones it keeps, and the release of those that it does not finish.

A kept token is leased to the worker by the commit that spawns it, so a chain costs one commit per step and no claim.
Fairness: after ``MAX_HOPS`` steps or ``MAX_RUN`` seconds a chain goes through the queue if other tokens are known to
wait there; a waiting token of higher priority ends the chain at once. The time limit does not apply to a workflow
that holds few slots: on a busy worker it passes while its steps wait for others.

A token that is not finished is handed back, left to other workers, or postponed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from dalsegno.core.scripts.tasks import is_put_off, put_off
from dalsegno.engine.committer import Committer, Pause
from dalsegno.engine.operations.troubles import StuckReason
from dalsegno.engine.worker.capabilities import (
    LASTING,
    NotRunnableHere,
    RunsInProgram,
    TaskMissing,
    pause_before_next_try,
)
from dalsegno.engine.worker.directory import LiveWorkers
from dalsegno.errors import BadConfiguration, CodeMissing, InternalError, OperatorError, StoreLost
from dalsegno.model.effect import SpawnToken
from dalsegno.model.execution import ExecutionKind
from dalsegno.model.token import Lease, NewToken, python_queue, with_handed_over
from dalsegno.model.transition import Applied, Outcome, ReadyToken, Refused, Transition, handed_back
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger

L = TypeVar("L")

KEEPABLE = frozenset(("node", "task", "resume"))
"""Kinds of tokens that a worker may keep."""
MAX_HOPS = 32
MAX_RUN = 0.05


class Continuation:
    """Decides which spawned tokens the worker asks to keep, and when it lets others go first."""

    def __init__(self, queues: Sequence[str]) -> None:
        self.queues = frozenset(queues)
        self.others_wait = False
        self._highest: int | None = None

    def announced(self, ready: Sequence[ReadyToken]) -> None:
        """Note that tokens became ready which no worker has leased yet."""
        own_priorities = [token.priority for token in ready if token.queue in self.queues]
        if own_priorities:
            self.others_wait = True
            self._highest = (
                max(own_priorities) if self._highest is None else max(self._highest, *own_priorities)
            )

    def claimed(self, *, all_of_them: bool) -> None:
        """Note the result of a claim; ``all_of_them`` if it found less than there was room for."""
        self._highest = None
        self.others_wait = not all_of_them

    def may_continue(self, hops: int, seconds: float, priority: int, holds_few: Callable[[], bool]) -> bool:
        if self._highest is not None and self._highest > priority:
            return False
        return not self.others_wait or (hops < MAX_HOPS and (seconds < MAX_RUN or holds_few()))

    def keeping(
        self, transition: Transition, room: Callable[[L], int], lease: L, worker: str, at_least: int = 1
    ) -> tuple[Transition, list[NewToken]]:
        """Return the transition, asking to keep as many of the tokens it spawns for ``worker`` as there is ``room``
        for, and those tokens. ``room`` is called, with the lease, only if there are more than ``at_least``.
        """
        kept: list[NewToken] = []
        for effect in transition.effects:
            if type(effect) is SpawnToken:
                token = effect.token
                is_free = token.due is None and token.limit_key is None
                if is_free and token.kind in KEEPABLE and token.queue in self.queues:
                    kept.append(token)
        if len(kept) > at_least:
            del kept[max(room(lease), 0) :]
        if not kept:
            return transition, []
        names = (kept[0].id,) if len(kept) == 1 else tuple([token.id for token in kept])
        return replace(transition, keep=names, worker=worker), kept


def kept_leases(
    execution: str,
    definition: str,
    epoch: int,
    kept: Sequence[NewToken],
    applied: Applied,
    now: float,
    kind: ExecutionKind = "graph",
) -> list[Lease]:
    """Return leases for the tokens that the commit left to the worker."""
    return [
        Lease(
            token.id,
            execution,
            1,
            token.scope,
            token.kind,
            token.node,
            token.data,
            token.queue,
            token.priority,
            1,
            0,
            "",
            now,
            definition,
            epoch,
            token.live,
            kind,
        )
        for token in kept
        if token.id in applied.kept
    ]


logger = logging.getLogger("dalsegno.worker")

BROKEN_PAUSE = 1.0
LONGEST_BROKEN_PAUSE = 60.0
SHORT_SLEEP = 0.1
"""Longest time, in seconds, for which a token that cannot sleep in the store sleeps in its slot."""
CANNOT_RUN_PAUSE = 2.0
LONGEST_PAUSE = 15.0
OFFERED_PAUSE = 0.25
LONGEST_OFFERED_PAUSE = 5.0
OFFERS_IN_A_ROW = 4
"""Offers before a token sleeps: another worker can run it and only has to claim it before this process does."""
REMEMBERED = 10_000
"""Tokens whose put-offs this process counts."""
Announce: TypeAlias = Callable[[Sequence[ReadyToken]], Awaitable[None]]


class TokenReleaser:
    def __init__(
        self, ledger: Ledger, broker: Broker, committer: Committer, live_workers: LiveWorkers
    ) -> None:
        self._ledger = ledger
        self._broker = broker
        self._committer = committer
        self.trouble: Callable[[StuckReason], None] = lambda trouble: None
        """Receives every token that this process cannot run."""
        self._live_workers = live_workers
        self._put_offs = BackoffCounter()
        self._offers = BackoffCounter()
        self._failures = BackoffCounter()

    def note_broken(self, lease: Lease, error: BaseException) -> None:
        """Log an internal error of a step; node failures are values and not handled here. An outage is logged without
        a traceback, and not for each token if it is known already.
        """
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
        times = self._failures.count(lease)
        self._report(lease, f"its step has an internal error: {error}", times)

    def _report(self, lease: Lease, reason: str, times: int) -> None:
        self.trouble(StuckReason("token", lease.token, lease.execution, reason, times, lease.attempt))

    async def give_back_broken(self, name: str, lease: Lease) -> None:
        """Hand back a token whose step broke, after a pause so that it does not break again at once. After the first
        failure another process may try it. After further failures it sleeps in the store with exponential backoff,
        and uses no slot meanwhile.
        """
        times = self._failures.times(lease)
        if times > 1 and await self._put_to_sleep(lease, backoff(BROKEN_PAUSE, times, LONGEST_BROKEN_PAUSE)):
            return
        await asyncio.sleep(BROKEN_PAUSE)
        await self.give_back(name, [lease])

    async def _put_to_sleep(self, lease: Lease, pause: float) -> bool:
        """Put the token to sleep in the store and return True on success. What broke the step may break this commit
        too, and the token must not stay leased then. A token that would forget what has woken it sleeps here and is
        handed back.
        """
        if _loses_wake_up(lease):
            await asyncio.sleep(pause)
            return False
        try:
            outcome = await self._committer.commit(put_off(lease, self._ledger.now() + pause))
        except StoreLost:
            return False
        except Exception:
            logger.exception("token %s of execution %s cannot be postponed", lease.token, lease.execution)
            return False
        return isinstance(outcome, Applied)

    async def put_off(self, name: str, lease: Lease, pause: float) -> None:
        """Put a token off: it returns after the pause, here or elsewhere."""
        if _loses_wake_up(lease):
            pause = min(pause, SHORT_SLEEP)  # in its slot; nothing of its workflow is claimed here meanwhile
        if not await self._put_to_sleep(lease, pause):
            await self.give_back(name, [lease])

    def note_stored(self, step: Transition) -> None:
        """Reset the failure count of a token whose step was stored."""
        if self._failures.known and step.token is not None and not is_put_off(step):  # checked for every step
            self._failures.forget(step.token)

    async def give_back(self, name: str, leases: Sequence[Lease]) -> None:
        """Hand leases back, retrying until the store accepts: a token that is neither run nor handed back would stay
        leased for ever.
        """
        await self._release(name, leases, self._broker.announce)

    async def _release(self, name: str, leases: Sequence[Lease], announce: Announce) -> None:
        leases = with_handed_over(leases)
        ready = handed_back(leases)
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
                    return  # the leases are lost with the store
                except OperatorError as error:
                    what = f"{len(leases)} leases cannot be handed back: they wait for the store"
                    outage.failed(these_leases, what, error)
                await asyncio.sleep(pause.next())
        finally:
            outage.gave_up(these_leases)

    async def leave_to_others(
        self, lease: Lease, error: BadConfiguration | NotRunnableHere, name: str
    ) -> None:
        """Leave a token to other processes that may be able to run it. Until then it must not delay other tokens."""
        if isinstance(error, TaskMissing):
            return await self._wait_for_task(lease, error, name)
        if isinstance(error, NotRunnableHere) and not isinstance(error, RunsInProgram):
            return await self._offer(lease, error, name)
        moved = await self._moved_to_queue(lease, error)
        if moved is not None and isinstance(await self._committer.commit(moved), Applied):
            return None
        if moved is not None or not await self._put_to_sleep(lease, self._put_off(lease, str(error))):
            await self.give_back(name, [lease])
        return None

    async def _offer(self, lease: Lease, error: NotRunnableHere, name: str) -> None:
        """Offer a token to the workers that can run it; this process is not notified. If it claims the token again
        all the same, the token sleeps for a while before the next offer.
        """
        times = self._offers.count(lease)
        level = logging.INFO if times == 1 else logging.DEBUG
        logger.log(
            level, "token %s of execution %s is left to others: %s", lease.token, lease.execution, error
        )
        rounds, repeats = divmod(times, OFFERS_IN_A_ROW)
        if repeats == 0:
            self._report(lease, str(error), rounds)
            if await self._put_to_sleep(lease, backoff(OFFERED_PAUSE, rounds, LONGEST_OFFERED_PAUSE)):
                return
        await self._release(name, [lease], self._broker.offer)

    async def _wait_for_task(self, lease: Lease, error: TaskMissing, name: str) -> None:
        """Put the token to sleep. A worker with the task that starts earlier wakes it."""
        level = (
            logging.DEBUG if error.missing_for else logging.WARNING
        )  # logged once, however many tokens need it
        logger.log(level, "token %s of execution %s waits: %s", lease.token, lease.execution, error)
        times = self._put_offs.count(lease)
        if error.missing_for >= LASTING:
            kept = lease.token, lease.execution, str(error), times, lease.attempt, error.offer, lease.queue
            self.trouble(StuckReason("token", *kept))
        if not await self._put_to_sleep(lease, pause_before_next_try(error.missing_for, lease.token)):
            await self.give_back(name, [lease])

    async def _moved_to_queue(self, lease: Lease, error: BaseException) -> Transition | None:
        """Return the move of a token to the queue of those that can run it: a turn of a Python workflow goes to
        workers with its code, if any is known; a remote task goes to the queue that its programs claim.
        """
        if isinstance(error, RunsInProgram):
            if lease.queue == error.queue or await self._is_limited(lease):
                return None
            return put_off(lease, self._ledger.now(), queue=error.queue)
        if not isinstance(error, CodeMissing) or lease.kind != "resume":
            return None
        queue = python_queue(error.module)
        if lease.queue == queue or not await self._is_served(queue):
            return None
        return put_off(lease, self._ledger.now(), queue=queue)

    async def _is_limited(self, lease: Lease) -> bool:
        """Return True for a token with a limit key, which stays in its queue."""
        found = await self._ledger.inspect(lease.execution)
        tokens = found.tokens if found is not None else ()
        return any(token.id == lease.token and token.limit_key is not None for token in tokens)

    async def _is_served(self, queue: str) -> bool:
        """Return True if a living worker serves the queue; False also during an outage."""
        try:
            return await self._live_workers.any(lambda info: queue in info.queues)
        except OperatorError:
            return False

    def _put_off(self, lease: Lease, reason: str) -> float:
        """Return the pause of a token that this process cannot run; it grows with each put-off."""
        times = self._put_offs.count(lease)
        level = logging.WARNING if times == 1 else logging.DEBUG
        logger.log(level, "token %s of execution %s is postponed: %s", lease.token, lease.execution, reason)
        self._report(lease, reason, times)
        return backoff(CANNOT_RUN_PAUSE, times, LONGEST_PAUSE)

    async def commit_failure(self, lease: Lease, failure: Transition) -> Outcome:
        """Commit a failure in place of a step that the store refused. If the store refuses the failure too, the token
        must not stay leased under a living name: it is postponed and shown as a dead letter.
        """
        outcome = await self._committer.commit(failure)
        if isinstance(outcome, Refused) and not _loses_wake_up(lease):
            reason = f"the store refuses the step, and its failure too: {outcome.message}"
            due = self._ledger.now() + self._put_off(lease, reason)
            outcome = await self._committer.commit(put_off(lease, due))
        if isinstance(outcome, Refused):
            raise InternalError(f"the store refuses even to postpone token {lease.token}: {outcome.message}")
        return outcome

    async def release_on_stop(self, name: str, leases: Sequence[Lease]) -> None:
        """Release leases with a single attempt: a process that stops does not wait for an outage to end."""
        leases = with_handed_over(leases)
        try:
            await self._ledger.release(name, leases)
            await self._broker.offer(handed_back(leases))
        except StoreLost:
            return
        except OperatorError as error:
            logger.warning(
                "%d leases of %s cannot be handed back (%s); they will expire",
                len(leases),
                name,
                error,
            )


class BackoffCounter:
    """Put-offs by this process of the current attempt of each token. They are not stored in the token: its attempts
    count runs of its work, which its retry policy bounds, and a put-off is no run.
    """

    def __init__(self) -> None:
        self.known: OrderedDict[str, tuple[int, int]] = OrderedDict()
        """Attempt and number of put-offs, by token."""

    def count(self, lease: Lease) -> int:
        """Count one more put-off and return the number. The least recently counted tokens are forgotten beyond
        ``REMEMBERED``.
        """
        times = self.times(lease) + 1
        self.known[lease.token] = lease.attempt, times
        self.known.move_to_end(lease.token)
        if len(self.known) > REMEMBERED:
            self.known.popitem(last=False)
        return times

    def times(self, lease: Lease) -> int:
        attempt, times = self.known.get(lease.token, (lease.attempt, 0))
        return times if attempt == lease.attempt else 0

    def forget(self, token: str) -> None:
        self.known.pop(token, None)


def _loses_wake_up(lease: Lease) -> bool:
    """Return True for a node that was woken by an arrival: if it slept again, it would take its next wake-up for
    its timeout. Tokens of scripts check for the arrival themselves.
    """
    return lease.kind == "node" and lease.reason == "arrival"


def backoff(first: float, times: int, longest: float) -> float:
    """Return an exponential backoff pause."""
    return min(first * 2.0 ** min(times - 1, 10), longest)
