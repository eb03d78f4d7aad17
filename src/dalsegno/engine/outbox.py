"""The outbox: what one execution owes another, delivered at least once.

An order is removed only after it was carried out. All of them are idempotent by derived ids, so doing one twice, or
in two processes at once, is harmless. Orders of one kind that follow each other are carried out together; those of
different kinds keep their order, so that a child is started before it is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from difflib import get_close_matches
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from dalsegno.core.await_outside import awaited_children
from dalsegno.core.orders import CancelOrder, Notice, StartOrder, decode_cancel, decode_notice, decode_start
from dalsegno.core.script_bodies import encode_body, failed, succeeded
from dalsegno.core.script_ending import CANCELLED, error_object, fail_at_start
from dalsegno.engine.definitions import Program, deployed_names
from dalsegno.engine.nesting import Nesting
from dalsegno.engine.offload import Requester, requester
from dalsegno.engine.outage import Outage, Pause
from dalsegno.engine.scripting.failures import class_names
from dalsegno.engine.scripting.programs import ScriptProgram
from dalsegno.engine.starting import never_started
from dalsegno.engine.troubles import CLEANUP, Trouble
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
from dalsegno.lang.effects import ErrorValue
from dalsegno.model.definition import VERSION_SIGN
from dalsegno.model.effect import DeliverToToken, Effect, SettlePromise, TakeOrder
from dalsegno.model.event import NewEvent
from dalsegno.model.execution import ENDED, ExecutionView
from dalsegno.model.transition import Applied, Refused, Transition
from dalsegno.ports.archive import ExecutionFilter
from dalsegno.ports.ledger import OutboxEntry

if TYPE_CHECKING:
    from dalsegno.engine.client import Client

logger = logging.getLogger("dalsegno.outbox")

BATCH = 100
LOOK_AGAIN = 5.0
"""Another process may have died before it delivered: that is noticed after this time. What could not be delivered here
is tried again after it, too."""
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 5.0
"""Between two tries to reach the store."""
LONGEST_COMPARED = 100
"""Characters of an unknown name that are compared with those that are known."""


class Outbox:
    def __init__(self, client: Client) -> None:
        self.client = client
        self.ledger = client.stack.ledger
        self.nesting = Nesting(client.stack.archive, client.limits.child_depth)
        self.outage = Outage()
        self.delivered = 0
        self.started: Callable[[str | None, str], None] = lambda parent, execution: None
        """Told of every execution that was started by order of another."""
        self.trouble: Callable[[Trouble], None] = lambda trouble: None
        """Told of every entry that could not be delivered."""
        self.look_every: Callable[[], float] = lambda: LOOK_AGAIN
        self._tries: Counter[str] = Counter()
        self._news = asyncio.Event()
        self._put_off: dict[str, float] = {}
        """Entries that this process cannot deliver now, and when it tries again."""

    def notice(self) -> None:
        """A commit of this process wrote an entry."""
        self._news.set()

    async def run(self) -> None:
        pause = Pause(FIRST_PAUSE, LONGEST_PAUSE)
        while True:
            self._news.clear()
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
                    await self._news.wait()
            except TimeoutError:
                continue

    def _pause(self) -> float:
        """What could not be delivered here is tried again soon, whatever others tell."""
        return LOOK_AGAIN if self._put_off else self.look_every()

    async def drain(self) -> None:
        """Delivers everything that can be delivered here and now."""
        clock = asyncio.get_running_loop().time
        self._put_off = {name: until for name, until in self._put_off.items() if until > clock()}
        while True:
            found = await self.ledger.outbox(BATCH + len(self._put_off))
            entries = [entry for entry in found if entry.id not in self._put_off]
            if not entries:
                return
            for _, alike in groupby(entries, key=lambda entry: entry.topic):
                await self._deliver_together(list(alike))

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
        """Whether it is done with. What broke for a reason of ours, or can be done only elsewhere, stays."""
        carry_out = self._orders().get(entry.topic)
        if carry_out is None:
            problem = f"this release does not know the topic '{entry.topic}'; a newer one may"
            logger.warning("outbox entry %s cannot be carried out by this process: %s", entry.id, problem)
            self._tell_trouble(entry, InternalError(problem))
            return False
        try:
            await carry_out(entry)
        except (BadConfiguration, InvalidDefinition) as error:
            # What was deployed was valid there: this process lacks a module or a node type, another may have it.
            logger.warning("outbox entry %s cannot be carried out by this process: %s", entry.id, error)
            self._tell_trouble(entry, error)
            return False
        except Overloaded as error:
            # One workflow has too much waiting; the entries of others are carried out meanwhile.
            logger.warning("outbox entry %s is carried out later: %s", entry.id, error)
            return False
        except OperatorError:
            raise
        except InternalError as error:
            logger.exception("outbox entry %s broke", entry.id)
            self._tell_trouble(entry, error)
            return False
        except (UsageError, msgspec.ValidationError) as error:
            # Nobody is there to be told, and it would fail again wherever it is tried.
            logger.error("outbox entry %s could not be carried out: %s", entry.id, error)
        return True

    def _tell_trouble(self, entry: OutboxEntry, error: Exception) -> None:
        self._tries[entry.id] += 1
        self.trouble(Trouble("outbox", entry.id, entry.execution, str(error), self._tries[entry.id]))

    def again(self, entry: str) -> None:
        """It is tried again at once."""
        self._put_off.pop(entry, None)
        self._news.set()

    def _orders(self) -> dict[str, Callable[[OutboxEntry], Awaitable[None]]]:
        return {
            "start": self._start,
            "cancel": self._cancel,
            "cancel_children": self._cancel_children,
            "ended": self._ended,
            "cleanup": self._cleanup,
        }

    # -- starting ---------------------------------------------------------------------------------------------

    async def _start(self, entry: OutboxEntry) -> None:
        order = decode_start(entry.data)
        requester.set(
            Requester(f"workflow:{order.workflow.partition(VERSION_SIGN)[0]}")
        )  # in a task of its own
        above = await self.nesting.above(order)
        if await self._is_lost(above):
            return
        try:
            self.nesting.check(order, above)
            await self.client.start_ordered(order)
        except InvalidDefinition:
            raise
        except UsageError as error:
            await self._tell_not_started(entry.id, order, await self._why_not(order, error))
            return
        self.started(order.parent, order.execution)
        if await self._is_lost(above):
            # It ended after the first look: whoever cancels its children may have missed this one.
            await self._cancel_one(CancelOrder(order.execution, "its parent has ended"))

    async def _is_lost(self, above: list[str]) -> bool:
        """Somebody above failed or was cancelled meanwhile: the child would only be started to be cancelled. A cancel
        goes down one level at a time, and must not be outrun by children that start children."""
        if not above:
            return False
        states = await self.client.stack.archive.states(above)
        lost = [place for place, name in enumerate(above) if states.get(name) in ("FAILED", "CANCELLED")]
        if not lost:
            return False
        between = above[: lost[0]]
        for execution in between:
            machine = await self.ledger.machine(execution)
            if machine is not None and machine.cancel:
                return False  # the cancel is there already, and this child may be part of cleaning up
        for execution in reversed(between):
            await self._cancel_one(CancelOrder(execution, CANCELLED))
        return True

    # -- telling ----------------------------------------------------------------------------------------------

    async def _tell_not_started(self, entry: str, order: StartOrder, error: ErrorValue) -> None:
        """To the promise or node that waits for it. Where nothing does, somebody still holds its id: it exists, FAILED,
        and the parent's history names it."""
        if order.notify is not None:
            event = self._child_ended(order.workflow, order.execution, error)
            await self._tell(entry, order.notify, order.execution, event, None, error)
            return
        logger.warning("'%s' was not started by order of %s: %s", order.workflow, order.parent, error.message)
        new = never_started(order, await self._program(order), self.ledger.now())
        outcome = await self.client.committer.commit(fail_at_start(new, error, new.created_at))
        if isinstance(outcome, Refused):
            logger.error("the failed start %s cannot be stored: %s", order.execution, outcome.message)
        if order.parent is not None and isinstance(outcome, Applied | Refused):
            # An order that comes again finds the execution there: the parent is told once.
            event = self._child_ended(order.workflow, order.execution, error, detached=True)
            await self.client.committer.commit(Transition(order.parent, (), (event,)))

    async def _program(self, order: StartOrder) -> Program | ScriptProgram | None:
        """What the order means, as far as it means anything."""
        try:
            return await self.client.ordered_program(order)
        except UsageError:
            return None

    async def _why_not(self, order: StartOrder, error: UsageError) -> ErrorValue:
        if isinstance(error, LimitExceeded):
            return ErrorValue("LimitExceeded", str(error), "LimitExceeded", classes=class_names(error))
        if not isinstance(error, NotFound):
            return ErrorValue("INVALID_INPUT", str(error))
        name = order.workflow.partition(VERSION_SIGN)[0]
        deployed = await deployed_names(self.client.stack.archive)
        others = [known for known in deployed if known != name]
        close = get_close_matches(name[:LONGEST_COMPARED], others, n=1)
        hint = f"did you mean '{close[0]}'? If not, deploy" if close else "deploy"
        return ErrorValue("NOT_FOUND", f"{error}; {hint} '{order.workflow}' and start it again")

    async def _ended(self, entry: OutboxEntry) -> None:
        notice = decode_notice(entry.data)
        view = await self.client.stack.archive.execution(entry.execution)
        if view is None:
            error: ErrorValue | None = ErrorValue(
                "NOT_FOUND", f"execution {entry.execution} has been removed"
            )
        else:
            error = None if view.state == "COMPLETED" else _error_of(view)
        event = self._child_ended(view.workflow if view is not None else "", entry.execution, error)
        output = (view.output if view is not None else None) or b"null"
        await self._tell(entry.id, notice, entry.execution, event, output if error is None else None, error)

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

    async def _tell(
        self,
        entry: str,
        notice: Notice,
        child: str,
        event: NewEvent,
        output: bytes | None,
        error: ErrorValue | None,
    ) -> None:
        """Once, however many processes carry out the entry: that goes with the commit."""
        effect = await self._effect(notice, child, output, error)
        # Whatever the answer: a parent that has ended is not interested any more.
        await self.client.committer.commit(Transition(notice.execution, (TakeOrder(entry), effect), (event,)))

    async def _effect(
        self, notice: Notice, child: str, output: bytes | None, error: ErrorValue | None
    ) -> Effect:
        if notice.promise is not None:
            if error is not None:
                return SettlePromise(failed(notice.promise, error), repeatable=True)
            result = await self.client.results.of_raw(
                notice.execution, output or b"null", "the child's output"
            )
            return SettlePromise(succeeded(notice.promise, result), repeatable=True)
        outcome = {"output": msgspec.Raw(output)} if output is not None else {"error": _described(error)}
        return DeliverToToken(notice.token or "", f"child:{child}", b"v" + encode_body(outcome))

    # -- cancelling -------------------------------------------------------------------------------------------

    async def _cancel(self, entry: OutboxEntry) -> None:
        await self._cancel_one(decode_cancel(entry.data))

    async def _cancel_one(self, order: CancelOrder) -> None:
        try:
            await self.client.cancel(order.execution, order.reason)
        except (NotFound, Conflict):
            return

    async def _cancel_children(self, entry: OutboxEntry) -> None:
        """Children that were merely started live on; and where only a branch was dropped, those of others too."""
        order = decode_cancel(entry.data)
        kept = await self._still_awaited(order)
        where = ExecutionFilter(parent=order.execution, relations=("child",))
        before: str | None = None
        while page := await self.client.executions(where, before):
            for child in page:
                if child.state not in ENDED and child.id not in kept:
                    await self._cancel_one(CancelOrder(child.id, order.reason))
            before = page[-1].id

    async def _cleanup(self, entry: OutboxEntry) -> None:
        """A dead letter for people. It is dropped by them, or when a new execution goes on with the clean-up."""
        await self.client.stack.records.put(CLEANUP, entry.execution, entry.data)

    async def _still_awaited(self, order: CancelOrder) -> frozenset[str]:
        if order.ended_scope is None:
            return frozenset()
        inspection = await self.ledger.inspect(order.execution)
        return awaited_children(inspection, order.ended_scope) if inspection is not None else frozenset()


def _error_of(view: ExecutionView) -> ErrorValue:
    error = msgspec.json.decode(view.error) if view.error is not None else {}
    code = "CancelledError" if view.state == "CANCELLED" else error.get("code") or "TASK_FAILED"
    return ErrorValue(
        code,
        error.get("message") or f"the child execution ended {view.state}",
        error.get("type"),
        error.get("details"),
        classes=tuple(error.get("classes") or ()),
        args=tuple(error.get("args") or ()),
        attributes=error.get("attributes"),
        traceback=error.get("traceback"),
    )


def _described(error: ErrorValue | None) -> dict[str, object]:
    return error_object(error, traceback=False) if error is not None else {}
