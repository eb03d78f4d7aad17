"""The execution messages of this project's own tokens (NodeExecutionMessage): each says that a token is ready.

A message only points at a token. What counts is in the ledger, so a message that is old, wrong or doubled does no harm.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from msgspec import Raw, Struct

from dalsegno.adapters.rabbitmq.amqp.frames import own_properties
from dalsegno.adapters.rabbitmq.sender import JSON, OutgoingLetter
from dalsegno.adapters.rabbitmq.topology import EXECUTION, HIGHEST_PRIORITY, execution_queue_name
from dalsegno.core.graph import step_input
from dalsegno.core.wire.execution_message import MAX_BYTES
from dalsegno.errors import OperatorError
from dalsegno.model.definition import VERSION_SIGN, Definition
from dalsegno.model.effect import CreateExecution, ResolveSlot, SpawnToken
from dalsegno.model.ids import traceparent
from dalsegno.model.token import DEFAULT_QUEUE, Lease, NewToken
from dalsegno.model.transition import ReadyToken, Transition

logger = logging.getLogger("dalsegno.rabbitmq")

REMEMBERED = 10_000
UNKNOWN = "unknown"
"""The workflow of an execution that is not stored any more, or while the store is away."""
NO_NODE = "none"
"""The node of a token that belongs to none, such as the deadline of its execution."""


class DefinitionReference(Struct, frozen=True, omit_defaults=True):
    """The definition of an execution, by its content hash."""

    reference: str = msgspec.field(name="$ref")
    name: str = ""
    version: int = 0


class LineageEntry(Struct, frozen=True):
    """One split around a token, outermost first."""

    split_node_id: str
    branch_id: str
    item_index: int
    total_items: int


class ExecutionMessage(Struct, frozen=True):
    workflow_id: str
    execution_id: str
    current_node: str
    workflow_definition: DefinitionReference
    accumulated_context: dict[str, Raw]
    from_node: str | None
    edge_id: str | None
    lineage_stack: list[LineageEntry]
    token_id: str
    attempt: int | None
    fence: int | None
    """Known of a token that this process has just created; None in the announcements of others."""
    queue: str
    priority: int


class _Pointer(Struct):
    """The decoded part of a message: it names a token, or comes from another program."""

    execution_id: str = ""
    token_id: str | None = None
    queue: str = ""
    priority: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Pointer).decode


def token_of(body: bytes, routing_key: str) -> ReadyToken | None:
    """Return the token that a message names, or None for a message of another program, valid or not."""
    if len(body) > MAX_BYTES:
        return None
    try:
        found = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not found.token_id:
        return None
    queue = found.queue or queue_of(routing_key)
    return ReadyToken(found.token_id, found.execution_id, queue, found.priority)


def queue_of(routing_key: str) -> str:
    return routing_key.removeprefix(f"{EXECUTION}.q.") if routing_key != EXECUTION else DEFAULT_QUEUE


DefinitionOf = Callable[[str], Awaitable[Definition | None]]
"""Returns the definition with a content hash."""
HashesOf = Callable[[Sequence[str]], Awaitable[Mapping[str, str]]]
"""Returns the content hashes of the definitions of executions, as far as they are stored."""


class KnownTokens:
    """A cache of tokens and executions that saves one query each."""

    def __init__(self, definition: DefinitionOf, hashes: HashesOf) -> None:
        self._definition = definition
        self._hashes_of = hashes
        self._spawned: dict[str, NewToken] = {}
        """Tokens of commits that are not announced yet."""
        self._hashes: OrderedDict[str, str] = OrderedDict()
        """Content hash of the definition, by execution."""
        self._references: dict[str, DefinitionReference] = {}
        """By content hash."""

    def committed(self, transition: Transition) -> None:
        """Note what a commit of this process has spawned."""
        if len(self._spawned) > REMEMBERED:
            self._spawned.clear()  # kept by their worker, or parked: such tokens are not announced
        for effect in transition.effects:
            if type(effect) is SpawnToken:
                self._spawned[effect.token.id] = effect.token
            elif type(effect) is ResolveSlot:
                self._spawned[effect.barrier.join.id] = effect.barrier.join
            elif type(effect) is CreateExecution:
                new = effect.execution
                self._learn(new.id, new.definition)
                self._references[new.definition] = DefinitionReference(
                    new.definition, new.workflow, new.version
                )

    def forget_spawned(self) -> None:
        """Forget the tokens of commits: they are not announced."""
        self._spawned.clear()

    def leased(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            if lease.execution not in self._hashes:
                self._learn(lease.execution, lease.definition)

    def _learn(self, execution: str, definition: str) -> None:
        self._hashes[execution] = definition
        if len(self._hashes) > REMEMBERED:
            self._hashes.popitem(last=False)

    async def letters(self, tokens: Sequence[ReadyToken]) -> list[OutgoingLetter]:
        spawned, self._spawned = self._spawned, {}
        unknown = {each.execution for each in tokens if each.execution not in self._hashes}
        if unknown:
            await self._look_up(sorted(unknown))
        references = {each.execution: await self._reference(each.execution) for each in tokens}
        return [_letter(each, spawned.get(each.token), references[each.execution]) for each in tokens]

    async def _look_up(self, executions: Sequence[str]) -> None:
        """Learn of executions that this process has neither started nor run, such as those of timers that it fires."""
        try:
            found = await self._hashes_of(executions)
        except OperatorError as error:
            logger.debug("the workflows of %d executions are not known: %s", len(executions), error)
            return
        for execution, definition in found.items():
            self._learn(execution, definition)

    async def _reference(self, execution: str) -> DefinitionReference:
        content = self._hashes.get(execution)
        if content is None:
            return NO_REFERENCE
        found = self._references.get(content)
        if found is None:
            definition = await self._definition(content)
            found = DefinitionReference(content)
            if definition is not None:
                found = DefinitionReference(content, definition.name, definition.version)
            if len(self._references) >= REMEMBERED:
                self._references.clear()
            self._references[content] = found
        return found


NO_REFERENCE = DefinitionReference("")


def _letter(token: ReadyToken, spawned: NewToken | None, definition: DefinitionReference) -> OutgoingLetter:
    context, lineage = _state(spawned)
    message = ExecutionMessage(
        workflow_id=definition.name.removeprefix(VERSION_SIGN) or UNKNOWN,
        execution_id=token.execution,
        current_node=token.node or NO_NODE,
        workflow_definition=definition,
        accumulated_context=context,
        from_node=(spawned.sender or None) if spawned is not None else None,
        edge_id=(spawned.edge or None) if spawned is not None else None,
        lineage_stack=lineage,
        token_id=token.token,
        attempt=1 if spawned is not None else None,
        fence=0 if spawned is not None else None,
        queue=token.queue,
        priority=token.priority,
    )
    priority = min(max(token.priority, 0), HIGHEST_PRIORITY)
    properties = own_properties(token.token[:120], JSON, priority, traceparent(token.execution))
    return OutgoingLetter(execution_queue_name(token.queue), properties, _encode(message))


def _state(spawned: NewToken | None) -> tuple[dict[str, Raw], list[LineageEntry]]:
    """Return the context of a token of a graph, as far as it is inline, and the splits around it."""
    if spawned is None or not spawned.data:
        return {}, []
    try:
        body = step_input.decode_body(spawned.data)
    except msgspec.DecodeError:
        return {}, []  # a token of a script
    entries = body.context.entries
    context = {key: _shown(entry) for key, entry in entries.items() if entry.kind in _SHOWN}
    lineage = [
        LineageEntry(each.split, f"{each.split}-{each.index}", each.index, each.total) for each in body.loops
    ]
    return context, lineage


_SHOWN = (step_input.VALUE, step_input.OUTPUT, step_input.BLOB)


def _shown(entry: step_input.Entry) -> Raw:
    if entry.kind == step_input.VALUE:
        return entry.raw
    return Raw(b'{"$ref":' + bytes(entry.raw) + b"}")
