"""The execution messages of this project's own tokens (NodeExecutionMessage): each says that a token is ready.

A message only points at a token. What counts is in the ledger, so a message that is old, wrong or doubled does no harm.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import Raw, Struct

from dalsegno.adapters.rabbitmq.amqp.frames import PERSISTENT, Properties
from dalsegno.adapters.rabbitmq.sender import OutgoingLetter
from dalsegno.adapters.rabbitmq.topology import EXECUTION, HIGHEST_PRIORITY, execution_queue_name
from dalsegno.core.graph import token_body
from dalsegno.core.trace_ids import traceparent
from dalsegno.model.definition import Definition
from dalsegno.model.effect import CreateExecution, SpawnToken
from dalsegno.model.token import DEFAULT_QUEUE, Lease, NewToken
from dalsegno.model.transition import ReadyToken, Transition

JSON = "application/json"
REMEMBERED = 10_000
UNKNOWN = "unknown"


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
    lineage_stack: list[LineageEntry]
    token_id: str
    attempt: int
    fence: int
    queue: str
    priority: int


class _Pointer(Struct):
    """What is read of a message: it names a token, or it is one of another program."""

    execution_id: str = ""
    token_id: str | None = None
    queue: str = ""
    priority: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Pointer).decode


def token_of(body: bytes, routing_key: str) -> ReadyToken | None:
    """Return the token that a message names, or None for a message of another program, valid or not."""
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


class KnownTokens:
    """What this process knows of tokens and executions without asking the store for each of them."""

    def __init__(self, definition: Callable[[str], Awaitable[Definition | None]]) -> None:
        self._definition = definition
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
        references = {each.execution: await self._reference(each.execution) for each in tokens}
        return [_letter(each, spawned.get(each.token), references[each.execution]) for each in tokens]

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
        workflow_id=definition.name or UNKNOWN,
        execution_id=token.execution,
        current_node=spawned.node if spawned is not None else UNKNOWN,
        workflow_definition=definition,
        accumulated_context=context,
        lineage_stack=lineage,
        token_id=token.token,
        attempt=1,
        fence=0,
        queue=token.queue,
        priority=token.priority,
    )
    properties = Properties(
        content_type=JSON,
        headers={"traceparent": traceparent(token.execution)},
        delivery_mode=PERSISTENT,
        priority=min(max(token.priority, 0), HIGHEST_PRIORITY),
        message_id=token.token[:120],
    )
    return OutgoingLetter(execution_queue_name(token.queue), properties, _encode(message))


def _state(spawned: NewToken | None) -> tuple[dict[str, Raw], list[LineageEntry]]:
    """Return the context of a token of a graph, as far as it is inline, and the splits around it."""
    if spawned is None or not spawned.data:
        return {}, []
    try:
        body = token_body.decode_body(spawned.data)
    except msgspec.DecodeError:
        return {}, []  # a token of a script
    entries = body.context.entries
    context = {key: _shown(entry) for key, entry in entries.items() if entry.kind in _SHOWN}
    return context, [LineageEntry(each.split, "", each.index, each.total) for each in body.loops]


_SHOWN = (token_body.VALUE, token_body.OUTPUT, token_body.BLOB)


def _shown(entry: token_body.Entry) -> Raw:
    if entry.kind == token_body.VALUE:
        return entry.raw
    return Raw(b'{"$ref":' + bytes(entry.raw) + b"}")
