"""The outbox: orders of one execution for another, delivered at least once.

- An order is removed only after it was carried out. All orders are idempotent by derived ids, so carrying one out
  twice, or in two processes at once, is harmless.
- Consecutive orders of one kind are carried out together. Orders of different kinds keep their order, so that a child
  is started before it is cancelled.
- Executions that wait for each other are nested within a limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from itertools import groupby
from typing import Any

import msgspec

from dalsegno.core.graph.external_waits import awaited_children
from dalsegno.core.outbox_orders import (
    CancelOrder,
    Notice,
    StartOrder,
    decode_cancel,
    decode_notice,
    decode_start,
)
from dalsegno.core.scripts.ending import CANCELLED, error_object, fail_at_start
from dalsegno.core.scripts.token_bodies import encode_body, failed, succeeded
from dalsegno.engine.committer import Outage, Pause
from dalsegno.engine.definitions import Program, deployed_names
from dalsegno.engine.executions import StoredExecutions, all_executions
from dalsegno.engine.operations.cancellation import Cancellation
from dalsegno.engine.operations.troubles import CLEANUP, StuckReason
from dalsegno.engine.scripts.failures import class_names
from dalsegno.engine.scripts.kept import taken_up
from dalsegno.engine.scripts.programs import ScriptProgram
from dalsegno.engine.scripts.retry import error_of
from dalsegno.engine.starting.start import Launcher, never_started
from dalsegno.engine.subprocesses.job_pool import Requester, requester
from dalsegno.errors import (
    BadConfiguration,
    Conflict,
    InternalError,
    InvalidDefinition,
    LimitExceeded,
    NotFound,
    OperatorError,
    Overloaded,
    UsageError,
)
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.model.definition import VERSION_SIGN
from dalsegno.model.effect import DeliverToToken, Effect, SettlePromise, TakeOrder
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import ENDED, NOT_ENDED, ExecutionView
from dalsegno.model.transition import Refused, Transition
from dalsegno.ports.archive import Archive, ExecutionFilter
from dalsegno.ports.ledger import OutboxEntry

REMEMBERED = 10_000
MOST_BELOW = 50
"""Executions that a view of one includes, counting those of its children."""
DEEPEST_LOOK = 5

Find = Callable[[ExecutionFilter], Awaitable[list[ExecutionView]]]


async def below(find: Find, execution: str, most: int = MOST_BELOW) -> list[ExecutionView]:
    """Return the unfinished executions that this one waits for, directly or through others, nearest first and at most
    ``most``.
    """
    found: list[ExecutionView] = []
    parents = [execution]
    for _ in range(DEEPEST_LOOK):
        children: list[ExecutionView] = []
        for parent in parents:
            where = ExecutionFilter(None, NOT_ENDED, parent=parent, relations=("child",))
            children += reversed(await find(where))
            if len(found) + len(children) >= most:
                return [*found, *children][:most]
        found += children
        parents = [child.id for child in children]
    return found


async def is_within(archive: Archive, execution: str, ancestor: str) -> bool:
    """Return True if an execution is this one, or one that a view of it includes."""
    for _ in range(DEEPEST_LOOK + 1):
        if execution == ancestor:
            return True
        view = await archive.execution(execution)
        if view is None or view.parent is None:
            return False
        execution = view.parent
    return False


class Nesting:
    """The depth of child executions. An execution's parent never changes, so it is cached."""

    def __init__(self, archive: Archive, most: int) -> None:
        self._archive = archive
        self._most = most
        self._parents: OrderedDict[str, str | None] = OrderedDict()

    async def above(self, order: StartOrder) -> list[str]:
        """Return the executions that wait for the ordered one, directly or through others, nearest first. Empty for
        one that is started without being waited for.
        """
        line: list[str] = []
        parent = order.parent if order.relation == "child" else None
        while parent is not None and len(line) <= self._most:
            line.append(parent)
            parent = await self._parent_of(parent)
        return line

    def check(self, order: StartOrder, above: list[str]) -> None:
        if len(above) > self._most:
            raise LimitExceeded(
                f"'{order.workflow}' was not started: child workflows that wait for each other are more than "
                f"{self._most} deep (limit child_depth); if it calls itself endlessly, fix that; else "
                f"process the work in a loop, or start the next one without waiting for it"
            )

    async def _parent_of(self, execution: str) -> str | None:
        if execution in self._parents:
            return self._parents[execution]
        view = await self._archive.execution(execution)
        if view is None:
            return None
        parent = self._parents[execution] = view.parent if view.relation == "child" else None
        if len(self._parents) > REMEMBERED:
            self._parents.popitem(last=False)
        return parent


logger = logging.getLogger("dalsegno.outbox")

BATCH = 100
LOOK_AGAIN = 5.0
"""Seconds after which entries are found that another process did not deliver because it died, and after which entries
that failed here are retried.
"""
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 5.0
"""Seconds between two attempts to reach the store: first and longest pause."""
LONGEST_COMPARED = 100
"""Characters of an unknown name that are compared with the known ones."""


class Outbox:
    def __init__(self, stored: StoredExecutions, launcher: Launcher, cancellation: Cancellation) -> None:
        self.stored = stored
        self.launcher = launcher
        self.cancellation = cancellation
        self.ledger = stored.stack.ledger
        self.nesting = Nesting(stored.stack.archive, stored.limits.child_depth)
        self.outage = Outage()
        self.delivered = 0
        self.started: Callable[[str | None, str], None] = lambda parent, execution: None
        """Called for every execution that was started by order of another."""
        self.trouble: Callable[[StuckReason], None] = lambda trouble: None
        """Called for every entry that could not be delivered."""
        self.look_every: Callable[[], float] = lambda: LOOK_AGAIN
        self._tries: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._put_off: dict[str, float] = {}
        """Entries that this process cannot deliver now, with the time of the next attempt."""

    def notice(self) -> None:
        """Note that a commit of this process wrote an entry."""
        self._changed.set()

    async def run(self) -> None:
        pause = Pause(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            self._changed.clear()
            try:
                await self.drain()
            except OperatorError as error:
                self.outage.failed(self, "the outbox waits for the store", error)
                await asyncio.sleep(pause.next())
                continue
            self.outage.answered(self)
            pause.reset()
            try:
                async with asyncio.timeout(self._pause()):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _pause(self) -> float:
        """Return the longest wait. Entries that could not be delivered here are retried soon, regardless of the
        polling interval.
        """
        return LOOK_AGAIN if self._put_off else self.look_every()

    async def drain(self) -> None:
        """Deliver all entries that this process can deliver now."""
        clock = asyncio.get_running_loop().time
        self._put_off = {name: until for name, until in self._put_off.items() if until > clock()}
        while True:
            found = await self.ledger.outbox(BATCH + len(self._put_off))
            entries = [entry for entry in found if entry.id not in self._put_off]
            if not entries:
                return
            for _, same_topic in groupby(entries, key=lambda entry: entry.topic):
                await self._deliver_together(list(same_topic))

    async def _deliver_together(self, entries: list[OutboxEntry]) -> None:
        answers = await asyncio.gather(*map(self._deliver, entries), return_exceptions=True)
        done = [entry.id for entry, answer in zip(entries, answers, strict=True) if answer is True]
        await self.ledger.delivered(done)
        self.delivered += len(done)
        for name in done:
            self._tries.pop(name, None)
        later = asyncio.get_running_loop().time() + LOOK_AGAIN
        for entry, answer in zip(entries, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            if not answer:
                self._put_off[entry.id] = later

    async def _deliver(self, entry: OutboxEntry) -> bool:
        """Deliver an entry and return True if it is finished. It remains after an internal error, or if only another
        process can carry it out.
        """
        handler = self._orders().get(entry.topic)
        if handler is None:
            problem = f"this release does not know the topic '{entry.topic}'; a newer one may"
            logger.warning("outbox entry %s cannot be carried out by this process: %s", entry.id, problem)
            self._report_trouble(entry, InternalError(problem))
            return False
        try:
            await handler(entry)
        except (BadConfiguration, InvalidDefinition) as error:
            # The definition was valid where it was deployed: this process lacks a module or a node type that another
            # may have.
            logger.warning("outbox entry %s cannot be carried out by this process: %s", entry.id, error)
            self._report_trouble(entry, error)
            return False
        except Overloaded as error:
            # One workflow has too much work queued; entries of others are carried out meanwhile.
            logger.warning("outbox entry %s is carried out later: %s", entry.id, error)
            return False
        except OperatorError:
            raise
        except InternalError as error:
            logger.exception("internal error while outbox entry %s was carried out", entry.id)
            self._report_trouble(entry, error)
            return False
        except (UsageError, msgspec.ValidationError) as error:
            # No caller waits for the error, and it would recur wherever it is retried.
            logger.error("outbox entry %s could not be carried out: %s", entry.id, error)
        return True

    def _report_trouble(self, entry: OutboxEntry, error: Exception) -> None:
        self._tries[entry.id] += 1
        self.trouble(StuckReason("outbox", entry.id, entry.execution, str(error), self._tries[entry.id]))

    def again(self, entry: str) -> None:
        """Retry an entry at once."""
        self._put_off.pop(entry, None)
        self._changed.set()

    def _orders(self) -> dict[str, Callable[[OutboxEntry], Awaitable[None]]]:
        return {
            "start": self._start,
            "continue": self._start,
            "cancel": self._cancel,
            "cancel_children": self._cancel_children,
            "ended": self._ended,
            "cleanup": self._cleanup,
        }

    # -- starts -----------------------------------------------------------------------------------------------

    async def _start(self, entry: OutboxEntry) -> None:
        order = decode_start(entry.data)
        # In a task of its own.
        requester.set(Requester(f"workflow:{order.workflow.partition(VERSION_SIGN)[0]}"))
        above = await self.nesting.above(order)
        if await self._is_lost(above):
            return
        try:
            self.nesting.check(order, above)
            await self.launcher.start_ordered(order)
        except InvalidDefinition:
            raise
        except UsageError as error:
            await self._report_not_started(entry.id, order, await self._why_not(order, error))
            return
        self.started(order.parent, order.execution)
        if await self._is_lost(above):
            # An ancestor ended after the first check: the cancellation of its children may have missed this one.
            await self._cancel_one(CancelOrder(order.execution, "its parent has ended"))

    async def _is_lost(self, above: list[str]) -> bool:
        """Return True if an ancestor failed or was cancelled meanwhile: the child would only be started to be
        cancelled. A cancellation descends one level at a time and must not be outrun by children that start children.
        """
        if not above:
            return False
        states = await self.stored.stack.archive.states(above)
        lost = [place for place, name in enumerate(above) if states.get(name) in ("FAILED", "CANCELLED")]
        if not lost:
            return False
        between = above[: lost[0]]
        for execution in between:
            machine = await self.ledger.machine(execution)
            if machine is not None and machine.cancel:
                return False  # the cancellation has arrived there, and this child may be part of the clean-up
        for execution in reversed(between):
            await self._cancel_one(CancelOrder(execution, CANCELLED))
        return True

    # -- notices ----------------------------------------------------------------------------------------------

    async def _report_not_started(self, entry: str, order: StartOrder, error: ErrorValue) -> None:
        """Report a failed start to the promise or node that waits for it. If none does, the id of the child may still
        be in use: the child is stored as FAILED, and the parent's history names it.
        """
        if order.notify is not None:
            event = self._child_ended(order.workflow, order.execution, error)
            await self._report(entry, order.notify, order.execution, event, None, error)
            return
        logger.warning(
            "'%s', ordered by %s, was not started: %s", order.workflow, order.parent, error.message
        )
        new = never_started(order, await self._program(order), self.ledger.now())
        outcome = await self.stored.committer.commit(fail_at_start(new, error, new.created_at))
        if isinstance(outcome, Refused):
            logger.error("the failed start %s cannot be stored: %s", order.execution, outcome.message)
        if order.parent is not None:
            event = self._child_ended(order.workflow, order.execution, error, detached=True)
            await self.stored.committer.commit(Transition(order.parent, (TakeOrder(entry),), (event,)))

    async def _program(self, order: StartOrder) -> Program | ScriptProgram | None:
        """Return the program of an order; None if there is none."""
        try:
            return await self.stored.definitions.ordered(order)
        except UsageError:
            return None

    async def _why_not(self, order: StartOrder, error: UsageError) -> ErrorValue:
        if isinstance(error, LimitExceeded):
            return ErrorValue("LimitExceeded", str(error), "LimitExceeded", classes=class_names(error))
        if not isinstance(error, NotFound):
            return ErrorValue("INVALID_INPUT", str(error))
        name = order.workflow.partition(VERSION_SIGN)[0]
        deployed = await deployed_names(self.stored.stack.archive)
        others = [known for known in deployed if known != name]
        close = get_close_matches(name[:LONGEST_COMPARED], others, n=1)
        hint = f"did you mean '{close[0]}'? If not, deploy" if close else "deploy"
        return ErrorValue("NOT_FOUND", f"{error}; {hint} '{order.workflow}' and start it again")

    async def _ended(self, entry: OutboxEntry) -> None:
        notice = decode_notice(entry.data)
        view = await self.stored.stack.archive.execution(entry.execution)
        if view is None:
            error: ErrorValue | None = ErrorValue(
                "NOT_FOUND", f"execution {entry.execution} has been removed"
            )
        else:
            error = None if view.state == "COMPLETED" else error_of(view)
        event = self._child_ended(view.workflow if view is not None else "", entry.execution, error)
        output = (view.output if view is not None else None) or b"null"
        await self._report(entry.id, notice, entry.execution, event, output if error is None else None, error)

    def _child_ended(
        self, workflow: str, execution: str, error: ErrorValue | None, *, detached: bool = False
    ) -> NewEvent:
        data: dict[str, Any] = {
            "execution": execution,
            "error": error_object(error) if error is not None else None,
        }
        if detached:
            data["detached"] = True
        return NewEvent("ChildEnded", workflow, "", self.ledger.now(), encode_body(data))

    async def _report(
        self,
        entry: str,
        notice: Notice,
        child: str,
        event: NewEvent,
        output: bytes | None,
        error: ErrorValue | None,
    ) -> None:
        """Notify the waiting execution once, however many processes carry out the entry: the commit ensures that."""
        effect = await self._effect(notice, child, output, error)
        # The outcome does not matter: a parent that has ended needs no notice.
        await self.stored.committer.commit(Transition(notice.execution, (TakeOrder(entry), effect), (event,)))

    async def _effect(
        self, notice: Notice, child: str, output: bytes | None, error: ErrorValue | None
    ) -> Effect:
        if notice.promise is not None:
            if error is not None:
                return SettlePromise(failed(notice.promise, error), repeatable=True)
            result = await self.stored.results.of_raw(
                notice.execution, output or b"null", "the child's output"
            )
            return SettlePromise(succeeded(notice.promise, result), repeatable=True)
        outcome = {"output": msgspec.Raw(output)} if output is not None else {"error": _described(error)}
        return DeliverToToken(notice.token or "", f"child:{child}", b"v" + encode_body(outcome))

    # -- cancellations ----------------------------------------------------------------------------------------

    async def _cancel(self, entry: OutboxEntry) -> None:
        await self._cancel_one(decode_cancel(entry.data))

    async def _cancel_one(self, order: CancelOrder) -> None:
        try:
            await self.cancellation.cancel(order.execution, order.reason)
        except (NotFound, Conflict):
            return

    async def _cancel_children(self, entry: OutboxEntry) -> None:
        """Cancel the children that were waited for. Children that were only started continue; if only a branch was
        dropped, so do the children of other branches.
        """
        order = decode_cancel(entry.data)
        kept = await self._still_awaited(order)
        where = ExecutionFilter(parent=order.execution, relations=("child",))
        async for child in all_executions(self.stored.stack.archive, where):
            if child.state not in ENDED and child.id not in kept:
                await self._cancel_one(CancelOrder(child.id, order.reason))

    async def _cleanup(self, entry: OutboxEntry) -> None:
        """Record a dead letter. People drop it, or a new execution that continues the clean-up does; that one may
        have been started while the entry was in flight.
        """
        stack = self.stored.stack
        await stack.records.put(CLEANUP, entry.execution, entry.data)
        if await taken_up(stack.archive, [entry.execution]):
            await stack.records.remove(CLEANUP, entry.execution)

    async def _still_awaited(self, order: CancelOrder) -> frozenset[str]:
        if order.ended_scope is None:
            return frozenset()
        inspection = await self.ledger.inspect(order.execution)
        return awaited_children(inspection, order.ended_scope) if inspection is not None else frozenset()


def _described(error: ErrorValue | None) -> dict[str, object]:
    return error_object(error, traceback=False) if error is not None else {}
