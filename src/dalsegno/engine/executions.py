"""The executions of one store, as this process reads them: filters, queries, and what commands to them need."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, TypedDict

import msgspec

from dalsegno.core.graph.step_input import Body, Context, decode_body, decode_page
from dalsegno.core.states import NodeSummary, TaskTally, summarise
from dalsegno.core.values import decode_value
from dalsegno.engine.committer import Committer
from dalsegno.engine.definitions import Definitions
from dalsegno.engine.journal.room import JournalRoom
from dalsegno.engine.operations.endings import Endings
from dalsegno.engine.operations.published import Followers, Published, StreamChunk
from dalsegno.engine.options import Moment, read_moment
from dalsegno.engine.scripts.task_inputs import TaskInputs
from dalsegno.engine.scripts.turns import InThread
from dalsegno.engine.secrets.snapshot_seals import SnapshotSeals
from dalsegno.engine.settings import DEFAULT_LIMITS, EngineLimits
from dalsegno.engine.steps.values import Loader, Results, Storage
from dalsegno.errors import Conflict, DalSegnoError, InvalidInput, NotFound
from dalsegno.model.event import Event
from dalsegno.model.execution import Ending, ExecutionKind, ExecutionState, ExecutionView
from dalsegno.model.transition import AlreadyApplied, Applied, Outcome, Refused, Stale, Transition
from dalsegno.ports.archive import Archive, ExecutionFilter, Place
from dalsegno.ports.stack import Stack


async def all_executions(
    archive: Archive, where: ExecutionFilter, before: str | None = None, at_once: int = 50
) -> AsyncIterator[ExecutionView]:
    """Yield the outlines of all executions of a filter, newest first; they are read page by page."""
    while page := await archive.executions(where, before, at_once):
        for view in page:
            yield view
        before = page[-1].id


class StoredExecutions:
    """The stack and the caches that the services of a client share. No service knows the client."""

    def __init__(
        self,
        stack: Stack,
        definitions: Definitions,
        committer: Committer,
        endings: Endings,
        loader: Loader,
        limits: EngineLimits = DEFAULT_LIMITS,
    ) -> None:
        self.stack = stack
        self.limits = limits
        self.definitions = definitions
        self.committer = committer
        self.endings = endings
        self.loader = loader
        storage = Storage(stack.blobs, limits.stored_bytes)
        storage.make_room = JournalRoom(stack.ledger, stack.blobs, committer.commit).make
        self.results = Results(storage, limits)
        self.inputs = TaskInputs(stack.archive, storage)
        self.offload = definitions.offload
        """Runs work on callers' data that would block the event loop."""
        self.followers = Followers(stack.published, stack.archive)
        self.seals: SnapshotSeals | None = None
        self.in_thread: InThread[None] | None = None
        """Runs possible user code where turns of Python workflows run; None: in the event loop."""
        self.task_limit: Callable[[str], Mapping[str, Any] | None] = lambda name: None
        """Return the ``concurrency`` that a task registered in this process declares."""

    # -- queries ----------------------------------------------------------------------------------------------

    async def status(self, execution: str) -> ExecutionView:
        view = await self.stack.archive.execution(execution)
        if view is None:
            raise no_execution(execution)
        return await self.inputs.with_own_input(view)

    async def outline(self, execution: str) -> ExecutionView:
        """Return the execution without input, output and context, which may be large."""
        view = await self.stack.archive.outline(execution)
        if view is None:
            raise no_execution(execution)
        return view

    async def wait(self, execution: str, timeout: float | None = None) -> ExecutionView:  # noqa: ASYNC109 - as users know it
        return await self.endings.wait(execution, timeout)

    async def ending(self, execution: str, timeout: float | None = None) -> Ending:  # noqa: ASYNC109 - as users know it
        return await self.endings.ending(execution, timeout)

    async def executions(
        self, where: ExecutionFilter, before: str | Place | None = None, limit: int = 50
    ) -> list[ExecutionView]:
        """Return outlines of executions, newest first."""
        return await self.stack.archive.executions(where, before, limit)

    async def events(self, execution: str, after: int = 0, limit: int = 1000) -> list[Event]:
        return await self.stack.archive.events(execution, after, limit)

    async def all_events(self, execution: str) -> list[Event]:
        found: list[Event] = []
        while page := await self.events(execution, len(found)):
            found += page
        return found

    async def published(self, execution: str) -> dict[str, Any]:
        """Return the newest published value of each key."""
        return await self.followers.current(execution)

    def watch(self, execution: str, keys: Sequence[str] = ()) -> AsyncIterator[Published]:
        """Yield the published values and their changes, until the execution has ended."""
        return self.followers.watch(execution, keys)

    def stream(self, execution: str, name: str, offset: int = 0) -> AsyncIterator[StreamChunk]:
        """Yield the chunks of a stream, until it is closed or the execution has ended."""
        return self.followers.follow(execution, name, offset)

    async def nodes(self, execution: str) -> dict[str, NodeSummary]:
        """Return state and runs of every node, over all visits and items; for a script, of every task by its name."""
        view = await self.outline(execution)
        if view.kind != "graph":
            return await self._tasks_of(view)
        program = await self.definitions.by_hash(view.definition)
        inspection = await self.stack.ledger.inspect(execution)
        tokens = inspection.tokens if inspection is not None else ()
        return summarise(program.plan, view, await self.all_events(execution), tokens)

    async def _tasks_of(self, view: ExecutionView) -> dict[str, NodeSummary]:
        inspection = await self.stack.ledger.inspect(view.id)
        tally = TaskTally()
        tally.add(await self.all_events(view.id))
        return tally.summaries(view, inspection.tokens if inspection is not None else ())

    async def context(self, execution: str) -> dict[str, Any]:
        """Return the final context of an ended execution, or the values its branches have left so far, as plain
        values.
        """
        return {name: decode_value(raw) for name, raw in (await self.stored_context(execution)).items()}

    async def stored_context(self, execution: str) -> dict[str, msgspec.Raw]:
        """Return the context as stored JSON."""
        found = await self.context_readers(execution)
        return {name: msgspec.Raw(await read()) for name, read in found.items()}

    async def context_readers(
        self, execution: str
    ) -> dict[str, Callable[[], Awaitable[bytes | msgspec.Raw]]]:
        """Return a reader for each value of the context: all values together may be large."""
        state, context = await self._kept_context(execution)
        return await self.readers_of(execution, state, context)

    async def readers_of(
        self, execution: str, state: str, context: bytes | None
    ) -> dict[str, Callable[[], Awaitable[bytes | msgspec.Raw]]]:
        """Return the same for an execution whose row is known."""
        found: dict[str, Callable[[], Awaitable[bytes | msgspec.Raw]]] = {}
        if state != "COMPLETED":
            for left in await self.stack.ledger.left(execution, ""):
                found.update(await self._readers(execution, decode_body(left.data).context))
        if context is not None:
            found.update(await self._readers(execution, decode_body(context).context))
        if "$trigger" not in found:
            found = {"$trigger": partial(self._input, execution), **found}
        return found

    async def _kept_context(self, execution: str) -> tuple[ExecutionState, bytes | None]:
        view = await self.status(execution)
        return view.state, view.context if view.kind == "graph" else None

    async def _input(self, execution: str) -> bytes:
        return (await self.status(execution)).input

    async def _readers(
        self, execution: str, context: Context
    ) -> dict[str, Callable[[], Awaitable[bytes | msgspec.Raw]]]:
        found: dict[str, Callable[[], Awaitable[bytes | msgspec.Raw]]] = {}
        for page in context.pages:
            stored = await self.stack.ledger.outputs(execution, [page])
            if page in stored:
                found.update(await self._readers(execution, decode_page(stored[page])))
        body = Body(context=context)
        for key, entry in context.entries.items():
            found[key] = partial(self.loader.raw, execution, body, entry)
        return found

    # -- commands ---------------------------------------------------------------------------------------------

    async def command(self, transition: Transition, verb: str) -> None:
        outcome = await self.committer.commit(transition, wait_for_store=False)
        if not isinstance(outcome, Applied | AlreadyApplied):
            raise await self.refusal(outcome, transition.execution, verb)

    async def refusal(self, outcome: Outcome, execution: str, verb: str) -> DalSegnoError:
        """Return the error for a command that the ledger did not apply."""
        if isinstance(outcome, Stale) and outcome.reason == "finished":
            view = await self.outline(execution)
            return Conflict(f"cannot {verb} execution {execution}: it has ended ({view.state})")
        if isinstance(outcome, Stale) and outcome.reason == "pending":
            return Conflict(
                f"cannot {verb} execution {execution}: it has not begun (PENDING); trigger or cancel it"
            )
        if isinstance(outcome, Refused):
            return InvalidInput(f"cannot {verb} execution {execution}: {outcome.message}")
        return no_execution(execution)


def no_execution(execution: str) -> NotFound:
    return NotFound(f"there is no execution {execution} in this store")


Bound = Literal["created_since", "created_until", "ended_since", "ended_until"]


class ExecutionFilters(TypedDict, total=False):
    """Filters that must all match; of several states, kinds or relations one must match."""

    states: Sequence[ExecutionState]
    kinds: Sequence[ExecutionKind]
    """Default: all kinds but schedules."""
    tags: Mapping[str, str]
    parent: str
    relations: Sequence[str]
    created_since: Moment
    created_until: Moment
    """Exclusive."""
    ended_since: Moment
    ended_until: Moment
    text: str
    """The beginning of an id, an idempotency key, part of a workflow's name, a tag's value, or words of an error."""


def filter_of(workflow: str | None, given: ExecutionFilters) -> ExecutionFilter:
    return ExecutionFilter(
        workflow,
        tuple(given.get("states", ())),
        tuple(sorted(given.get("tags", {}).items())),
        given.get("parent"),
        tuple(given.get("kinds", ())),
        tuple(given.get("relations", ())),
        created_since=_moment(given, "created_since"),
        created_until=_moment(given, "created_until"),
        ended_since=_moment(given, "ended_since"),
        ended_until=_moment(given, "ended_until"),
        text=given.get("text"),
    )


def _moment(given: ExecutionFilters, name: Bound) -> float | None:
    moment = given.get(name)
    return None if moment is None else read_moment(moment, f"'{name}'")
