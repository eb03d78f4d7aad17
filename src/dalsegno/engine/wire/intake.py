"""Intake: messages of other programs, taken into the ledger.

- A message starts the execution it names, or arrives in it; the rules are in ``core.wire.adoption``.
- The archive is asked first: an ended execution, or one that retention has removed, is never started again.
- A definition that a message carries is kept by its content hash, under a name that no deployed one can have.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from dalsegno.core.values import refuse_size
from dalsegno.core.wire.adoption import (
    WORKFLOW_ID,
    Scope,
    Target,
    adopted_split,
    arrival_of,
    barrier_prefix,
    begin,
    begin_in_line,
    check_total,
    is_plain_start,
    join,
)
from dalsegno.core.wire.execution_message import (
    MAX_BYTES,
    ExecutionMessage,
    InvalidMessage,
    Reading,
    Reference,
    identity_of,
    read_whole,
    reading_of,
    too_large,
)
from dalsegno.engine.definitions import Program
from dalsegno.engine.executions import StoredExecutions
from dalsegno.engine.starting.start import Launcher, check_input, workflow_limit
from dalsegno.engine.subprocesses.examination import value_of
from dalsegno.engine.subprocesses.job_pool import Offload, OffloadLimits, Requester, requester
from dalsegno.engine.tracing import TRACEPARENT, read_traceparent
from dalsegno.engine.wire.carried import CarriedDefinitions, below
from dalsegno.errors import (
    InternalError,
    InvalidDefinition,
    InvalidInput,
    LimitExceeded,
    NotFound,
)
from dalsegno.model.definition import ADOPTED, is_adopted, is_part
from dalsegno.model.event import Event
from dalsegno.model.execution import ENDED, ExecutionView, NewExecution
from dalsegno.model.limits import Concurrency
from dalsegno.model.transition import AlreadyApplied, Applied, Refused, Stale
from dalsegno.ports.archive import Archive
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.messages import Adopt, ForeignMessage, Taken
from dalsegno.ports.records import Records

INLINE_BYTES = 65_536
"""Bytes of a message that is read in the event loop; larger ones are read in a process."""
APART = OffloadLimits(processes=2, seconds=60.0, wait_seconds=None, queue=sys.maxsize)
"""Processes for messages alone: one reads large messages and one compiles definitions. No caller waits for them, so
that they may wait long; how many there are is limited where they come from."""
ATTEMPTS = 5
"""How often a message is planned again because another one was faster."""
REMEMBERED = 1_000

T = TypeVar("T")


class Recent(OrderedDict[Any, T]):
    """The newest entries of a cache."""

    def put(self, key: Any, found: T) -> T:
        self[key] = found
        self.move_to_end(key)
        while len(self) > REMEMBERED:
            self.popitem(last=False)
        return found


class WireIntake:
    """The implementation of ``ports.messages.Intake``."""

    def __init__(self, stored: StoredExecutions, launcher: Launcher, adopt: Adopt) -> None:
        self.stored = stored
        self.launcher = launcher
        self.adopt = adopt
        self.ids = AdoptedIds(stored.stack.records, stored.stack.archive, stored.stack.ledger)
        self.applied: Callable[[str], None] = lambda execution: None
        """Called with every execution that a message has changed."""
        self.offload = Offload(APART)
        self.carried = CarriedDefinitions(stored.definitions, stored.limits, self.offload)
        self._hashes: Recent[str] = Recent()
        """Stored definitions by the digest of what a message carried."""
        self._contents: Recent[str] = Recent()
        """Content hashes of stored definitions, and of definitions that messages carried."""
        self._splits: Recent[tuple[str, int]] = Recent()
        """Tokens of open splits, and how many items they have."""

    async def take(self, message: ForeignMessage) -> Taken:
        execution = ""
        try:
            read = await self._read(message.body)
            execution = read.message.execution_id
            return await self._take(message, read)
        except InvalidMessage as refusal:
            return Taken("refused", execution, str(refusal), refusal.code)

    async def _read(self, body: bytes) -> Reading:
        """Read a message: a small one here, any other in a process."""
        if len(body) <= INLINE_BYTES:
            return read_whole(body)
        if len(body) > MAX_BYTES:
            raise too_large(len(body), "The message")
        requester.set(Requester("messages"))
        try:
            return reading_of(value_of(await self.offload.large("message", body)))
        except LimitExceeded as error:
            raise InvalidMessage("TOO_LARGE", f"The message cannot be read: {error}") from None

    async def close(self) -> None:
        await self.offload.close()

    async def _take(self, message: ForeignMessage, read: Reading) -> Taken:
        parsed = read.message
        execution = parsed.execution_id
        if parsed.token_id:
            return Taken("duplicate", execution)  # the ledger has that token, and counts
        if self.adopt == "off":
            raise InvalidMessage(
                "ADOPTION_OFF", "Messages of other programs are not taken in (DALSEGNO_ADOPT=off)."
            )
        for _ in range(ATTEMPTS):
            view = await self.stored.stack.archive.outline(execution)
            if view is not None:
                taken = await self._join(message, read, view)
            elif await self.ids.has(execution):
                return Taken("duplicate", execution)
            else:
                taken = await self._begin(message, read)
            if taken is not None:
                return taken
        raise InternalError(f"a message for execution {execution} was overtaken {ATTEMPTS} times")

    # -- starts -----------------------------------------------------------------------------------------------

    async def _begin(self, message: ForeignMessage, read: Reading) -> Taken | None:
        parsed, program = read.message, await self._program(read)
        arrival = arrival_of(program.plan, parsed, timer=message.timer)
        new = await self._new(message, parsed, program)
        now = self.stored.stack.ledger.now()
        identity = identity_of(read, message.identity)
        transition = begin(program.plan, new, parsed, arrival, identity, now)
        if program.plan.limit is not None and is_plain_start(program.plan, parsed, arrival):
            limit = await self._limit(program, new, now)
            transition = begin_in_line(new, parsed, arrival, identity, now, limit)
        outcome = await self.launcher.commit_first(new, transition)
        if isinstance(outcome, Refused):
            raise InvalidMessage("REFUSED", f"The store cannot hold the message: {outcome.message}")
        if not isinstance(outcome, Applied):
            return None
        await self.ids.add(new.id)
        return self._applied(new.id)

    async def _new(self, message: ForeignMessage, parsed: ExecutionMessage, program: Program) -> NewExecution:
        raw, definition = parsed.trigger, program.definition
        stored = self.stored
        try:
            refuse_size(len(raw), "the start payload", stored.limits.value_bytes)
            await check_input(program, raw, stored.limits, stored.offload, stored.in_thread)
        except (InvalidInput, LimitExceeded) as error:
            found = [below("/accumulated_context/$trigger", each) for each in getattr(error, "findings", ())]
            raise InvalidMessage("INVALID_INPUT", str(error).partition("\n")[0], found) from None
        tags = [(WORKFLOW_ID, parsed.workflow_id)]
        parent = message.headers.get(TRACEPARENT)
        if parent is not None and read_traceparent(parent) is not None:
            tags.append((TRACEPARENT, parent))
        return NewExecution(
            id=parsed.execution_id,
            workflow=definition.name,
            version=definition.version,
            definition=definition.hash,
            input=raw,
            created_at=stored.stack.ledger.now(),
            tags=tuple(sorted(tags)),
        )

    async def _limit(self, program: Program, new: NewExecution, now: float) -> Concurrency:
        try:
            limit = await workflow_limit(program, new, now, self.stored.limits, self.stored.offload)
        except (InvalidInput, LimitExceeded) as error:
            raise InvalidMessage.at("/workflow_definition/concurrency", "INVALID_INPUT", str(error)) from None
        if limit is None:
            raise InternalError(f"workflow '{new.workflow}' has lost its limit")
        return limit

    # -- arrivals ---------------------------------------------------------------------------------------------

    async def _join(self, message: ForeignMessage, read: Reading, view: ExecutionView) -> Taken | None:
        parsed = read.message
        duplicate = Taken("duplicate", view.id)
        if view.state in ENDED:
            return duplicate
        if view.kind != "graph":
            raise InvalidMessage.at("/execution_id", "NOT_A_GRAPH", f"execution {view.id} is no graph.")
        await self._expect_same_definition(read, view)
        program = await self.stored.definitions.by_hash(view.definition)
        arrival = arrival_of(program.plan, parsed, timer=message.timer)
        if arrival.kind in ("trigger", "entries") and not await self._was_adopted(view.id):
            return duplicate  # its start has started all of them
        scopes = await self._scopes(parsed, view)
        target = Target(view.id, view.definition, view.priority, view.epoch)
        identity = identity_of(read, message.identity)
        now = self.stored.stack.ledger.now()
        transition = join(program.plan, target, parsed, arrival, identity, scopes, now)
        outcome = await self.stored.committer.commit(transition, wait_for_store=False)
        match outcome:
            case Applied():
                for scope in scopes:
                    self._remember(view.id, scope)
                return self._applied(view.id)
            case AlreadyApplied() | Stale("finished" | "scope"):
                return duplicate
            case Refused(reason):
                raise InvalidMessage("REFUSED", f"The store cannot hold the message: {reason}")
            case _:
                return None

    async def _was_adopted(self, execution: str) -> bool:
        """Return True if a message has begun the execution: it then started only what the message named."""
        first: list[Event] = await self.stored.stack.archive.events(execution, 0, 1)
        return bool(first) and first[0].data is not None and b'"adopted":{' in first[0].data

    async def _scopes(self, parsed: ExecutionMessage, view: ExecutionView) -> list[Scope]:
        """Return the scopes that the lineage names, as far as they are open."""
        found: list[Scope] = []
        parent = ""
        for number, frame in enumerate(parsed.frames):
            known = self._splits.get((view.id, parent, frame.split_node_id))
            if known is None:
                known = await self._open_split(view, parent, frame.split_node_id)
            if known is not None:
                check_total(number, frame, known[1])
                token = known[0]
            else:
                token = adopted_split(view.id, parent, frame.split_node_id)
            scope = Scope(frame, parent, token, is_open=known is not None)
            found.append(scope)
            parent = scope.path
        return found

    async def _open_split(self, view: ExecutionView, parent: str, split: str) -> tuple[str, int] | None:
        """Return the token of a split in a scope and how many items it has; one that still waits comes first. One
        barrier is read, however many the execution has.
        """
        prefix = barrier_prefix(view.epoch, parent, split)
        found = await self.stored.stack.ledger.visit(view.id, prefix)
        return (found.id.removeprefix(prefix), found.expected) if found is not None else None

    def _remember(self, execution: str, scope: Scope) -> None:
        key = (execution, scope.parent, scope.frame.split_node_id)
        self._splits.put(key, (scope.token, scope.frame.total_items))

    def _applied(self, execution: str) -> Taken:
        self.applied(execution)
        return Taken("applied", execution)

    # -- definitions ------------------------------------------------------------------------------------------

    async def _program(self, read: Reading) -> Program:
        """Return the definition of a message that starts an execution; one that it carries is stored."""
        try:
            if read.reference is not None:
                return await self._referred(read.reference)
            return await self._carried(read)
        except InvalidDefinition as error:
            found = [
                below("/workflow_definition", each) for each in error.findings if each.severity == "error"
            ]
            raise InvalidMessage("INVALID_DEFINITION", "The definition does not validate.", found) from None

    async def _referred(self, reference: Reference) -> Program:
        definitions = self.stored.definitions
        try:
            if reference.hash is not None:
                program = await definitions.any_by_hash(reference.hash)
            else:
                program = await definitions.by_name(str(reference.name), reference.version)
        except (NotFound, InvalidInput) as error:
            raise InvalidMessage.at("/workflow_definition", "UNKNOWN_DEFINITION", str(error)) from None
        if not isinstance(program, Program) or is_part(program.definition):
            what = f"'{program.definition.name}' is no graph."
            raise InvalidMessage.at("/workflow_definition", "NOT_A_GRAPH", what)
        if self.adopt == "known" and is_adopted(program.definition.hash):
            raise _not_deployed()
        return program

    async def _carried(self, read: Reading) -> Program:
        definitions, archive = self.stored.definitions, self.stored.stack.archive
        key = (read.definition_digest, read.names)
        known = self._hashes.get(key)
        if known is not None:
            try:
                return await definitions.by_hash(known)
            except NotFound:  # an operator has removed it
                del self._hashes[key]
        is_known = self.adopt == "known"
        compiled = await self.carried.compile(
            read.message.workflow_definition, () if is_known else read.names
        )
        if is_known:
            found = await archive.definition_by_hash(compiled.deployed_hash)
            if found is None or is_part(found):
                raise _not_deployed()
            kept = found.hash
        else:
            await self.carried.store(archive, compiled)
            kept = compiled.hash
        self._hashes.put(key, kept)
        return await definitions.by_hash(kept)

    async def _expect_same_definition(self, read: Reading, view: ExecutionView) -> None:
        """Raise InvalidMessage if the message means another definition than the one that the execution runs."""
        if read.reference is not None:
            meant = (await self._referred(read.reference)).definition.hash
            is_same = meant == view.definition
        elif self._hashes.get((read.definition_digest, read.names)) == view.definition:
            is_same = True
        else:
            carried = await self._content(read)
            is_same = carried == await self._content_of_stored(view.definition)
        if not is_same:
            what = f"this is another definition than the one that execution {view.id} runs."
            raise InvalidMessage.at("/workflow_definition", "DEFINITION_DIFFERS", what)

    async def _content_of_stored(self, hash: str) -> str:
        if is_adopted(hash):
            return hash.removeprefix(ADOPTED).partition("-")[0]
        known = self._contents.get(hash)
        if known is None:
            program = await self.stored.definitions.by_hash(hash)
            known = self._contents.put(hash, await self.carried.content(program.definition.source))
        return known

    async def _content(self, read: Reading) -> str:
        known = self._contents.get(read.definition_digest)
        if known is None:
            content = await self.carried.content(bytes(read.message.workflow_definition))
            known = self._contents.put(read.definition_digest, content)
        return known


def _not_deployed() -> InvalidMessage:
    what = "no deployed definition has this content, and only those are taken in (DALSEGNO_ADOPT=known)."
    return InvalidMessage.at("/workflow_definition", "NOT_DEPLOYED", what)


# -- ids of adopted executions ---------------------------------------------------------------------------------


ADOPTED_ID = "adopted-execution"
ADOPTED_IDS_KEPT = 48 * 3600.0
"""Longer than a message lives in a queue and on the retry ladder."""
IDS_PER_PAGE = 500
FORGET_EVERY = 600.0
"""Seconds between two looks at all adopted ids."""


class AdoptedId(Struct, frozen=True):
    ended_at: float | None = None
    """The end of the execution, at the latest; None as long as it runs."""


_decode = msgspec.json.Decoder(AdoptedId).decode


class AdoptedIds:
    """They are known for 48 hours after the end, also where retention has removed the execution."""

    def __init__(self, records: Records, archive: Archive, ledger: Ledger) -> None:
        self.records = records
        self.archive = archive
        self.ledger = ledger

    async def add(self, execution: str) -> None:
        await self.records.put(ADOPTED_ID, execution, msgspec.json.encode(AdoptedId()), expected=0)

    async def has(self, execution: str) -> bool:
        return await self.records.get(ADOPTED_ID, execution) is not None

    async def run(self) -> None:
        while True:
            await self.forget_old()
            await asyncio.sleep(FORGET_EVERY)

    async def forget_old(self) -> int:
        """Note which executions have ended, and remove ids that are no longer needed; return how many were removed."""
        now, after, removed = self.ledger.now(), "", 0
        while page := await self.records.page(ADOPTED_ID, after, IDS_PER_PAGE):
            after = page[-1].id
            states = await self.archive.states([record.id for record in page])
            for record in page:
                if record.id in states and states[record.id] not in ENDED:
                    continue
                known = _decode(record.data)
                if known.ended_at is None:
                    ended = msgspec.json.encode(AdoptedId(now))
                    await self.records.put(ADOPTED_ID, record.id, ended, expected=record.version)
                elif known.ended_at + ADOPTED_IDS_KEPT < now:
                    removed += await self.records.remove(ADOPTED_ID, record.id, expected=record.version)
        return removed
