"""Running one node: load what it mentions, render its parameters, execute it, catch whatever it raises."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dalsegno.core.situation import Situation
from dalsegno.core.values import encode_value
from dalsegno.engine.budget import Meters, is_light
from dalsegno.engine.definitions import Program
from dalsegno.engine.loader import Loader, Lookup, nothing
from dalsegno.engine.raised import HEADER, PassesThrough, bounded_traceback, is_failure, said_by, traceback_of
from dalsegno.engine.run_context import LogSink, RunContext
from dalsegno.engine.secrets.redaction import Redactor
from dalsegno.engine.settings import DEFAULT_LIMITS, EngineLimits
from dalsegno.errors import DalSegnoError, LimitExceeded, NotFound, NotJson, OperatorError
from dalsegno.graph.plan import Node
from dalsegno.lang import ExpressionFailed
from dalsegno.model.failure import Failure
from dalsegno.ports.node import NodeError, NodeType, NodeTypes
from dalsegno.ports.transactions import TransactionLost

logger = logging.getLogger("dalsegno.steps")

NO_OUTPUTS: Mapping[str, Any] = {}


LOG_HEADER = "Raised at (most recent call last):"
LONGEST_MESSAGE = 10_000
"""Characters of an error's message; it is stored several times over."""


class OnlyRendered(PassesThrough):
    """A node's parameters, where the process that asked for them runs the node itself."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        super().__init__()
        self.parameters = parameters


class Runner:
    def __init__(
        self,
        types: NodeTypes,
        loader: Loader,
        services: Mapping[str, Any],
        log: LogSink,
        limits: EngineLimits = DEFAULT_LIMITS,
    ) -> None:
        self.types = types
        self.loader = loader
        self.services = services
        self.log = log
        self._meters = Meters(limits)
        self.rendered: dict[str, Mapping[str, Any]] = {}
        """Parameters that were rendered in another process, by their tokens."""
        self.only_renders = False
        """Whether runs with effects are left to the process that asked."""

    async def run(self, program: Program, situation: Situation, payload: Any = None) -> Any:
        """What the node returned, or the Failure it came to. Only what ends the worker passes through, and a store that
        cannot be read: that is no failure of the node, which has not even begun."""
        node = situation.node
        limit: asyncio.Timeout | None = None
        context: RunContext | None = None
        try:
            node_type = self.types.get(node.type)
            if node.parameters.roots or node_type.needs:
                context = await self._context(program, situation, node_type, payload)
            else:
                context = self._seen(program, situation, nothing, payload, NO_OUTPUTS, node_type)
            parameters = program.parsed.get(node)
            if parameters is None:
                if not (node_type.pure or node.parameters.template.constant):
                    await self._render(situation, context)
                parameters = self._parameters(program, situation, node_type, context)
            if not node_type.pure:
                is_light.set(
                    False
                )  # what it does is done once, and code of the application knows no such limits
            if node.timeout is None:
                returned = await node_type.execute(context, parameters)
            else:
                async with asyncio.timeout(node.timeout) as limit:
                    returned = await node_type.execute(context, parameters)
            if context.secrets is None:
                return returned
            return await context.secrets.returned(returned, f"the output of node '{node.id}'")
        except BaseException as error:
            if not is_failure(error):
                raise
            if limit is not None and limit.expired() and isinstance(error, TimeoutError):
                return _timed_out(node)
            if isinstance(error, TransactionLost) or (isinstance(error, OperatorError) and context is None):
                raise
            secrets = context.secrets if context is not None else None
            failure = failure_of(error, node, secrets)
            _tell(situation, failure)
            return failure
        finally:
            self.rendered.pop(situation.lease.token, None)

    def has_effects(self, node: Node) -> bool:
        return self.types.find(node.type) is not None and not self.types.get(node.type).pure

    async def _render(self, situation: Situation, context: RunContext) -> None:
        """The parameters of a node with effects."""
        token, template = situation.lease.token, situation.node.parameters.template
        if token not in self.rendered:
            self.rendered[token] = await self._meters.evaluate(
                lambda meter: template.render(context.lookup, now=context.now, meter=meter)
            )

    async def _context(
        self, program: Program, situation: Situation, node_type: NodeType, payload: Any
    ) -> RunContext:
        node = situation.node
        roots = node.parameters.roots
        predecessors: tuple[str, ...] = ()
        if node_type.needs:
            # What the caller hands over may not be stored yet, and need not be loaded.
            handed = ("$payload",) if payload is not None else ()
            if "$predecessors" in node_type.needs:
                predecessors = tuple(edge.src for edge in node.in_edges)
            roots = roots.union(node_type.needs.difference(handed), predecessors)
        lookup = await self.loader.lookup(situation.lease.execution, situation.body, roots, program.meta)
        outputs = _outputs(predecessors, lookup) if predecessors else NO_OUTPUTS
        return self._seen(program, situation, lookup, payload, outputs, node_type)

    def _seen(
        self,
        program: Program,
        situation: Situation,
        lookup: Lookup,
        payload: Any,
        outputs: Mapping[str, Any],
        node_type: NodeType,
    ) -> RunContext:
        return RunContext(
            program,
            situation,
            lookup,
            payload,
            outputs,
            self.services,
            self.log,
            self._meters,
            node_type.pure,
        )

    def _parameters(
        self, program: Program, situation: Situation, node_type: NodeType, context: RunContext
    ) -> Any:
        node = situation.node
        template = node.parameters.template
        if template.constant:
            rendered = template.value
        elif not node_type.pure:
            rendered = self.rendered[situation.lease.token]
        else:
            rendered = template.render(context.lookup, now=context.now, meter=context.meter)
        if self.only_renders and not node_type.pure:
            raise OnlyRendered(rendered)
        raw = node.parameters.raw
        parsed = node_type.parse({**rendered, **raw} if raw else rendered)
        if template.constant:
            program.parsed[node] = parsed
        return parsed


def _outputs(predecessors: Sequence[str], lookup: Lookup) -> dict[str, Any]:
    found = {}
    for name in predecessors:
        try:
            found[name] = lookup(name)
        except KeyError:
            continue
    return found


def _tell(situation: Situation, failure: Failure) -> None:
    """In the worker's log, with the frames of user code."""
    lease = situation.lease
    logger.info(
        "node '%s' of execution %s failed (attempt %d): %s: %s%s",
        lease.node,
        lease.execution,
        lease.attempt,
        failure.type,
        failure.message,
        logged_traceback(failure),
    )


def logged_traceback(failure: Failure) -> str:
    """Without the word by which a log is searched for errors of Dal Segno itself."""
    return "" if failure.traceback is None else "\n" + failure.traceback.replace(HEADER, LOG_HEADER)


def failure_of(error: BaseException, node: Node, secrets: Redactor | None = None) -> Failure:
    """A node's exception as a value."""
    return storable_failure(error, node.id, secrets)


def storable_failure(error: BaseException, node: str | None, secrets: Redactor | None = None) -> Failure:
    """Any exception as a value that every store can hold: ours keep their codes, others fail under their class's
    name. ``secrets`` are taken out before anything is cut: half of one would not be recognised."""
    failure = _failure(error)
    if failure.traceback is None:
        redact = str if secrets is None else secrets.text
        failure = msgspec.structs.replace(failure, traceback=traceback_of(error, redact))
    return _storable(failure if secrets is None else secrets.failure(failure), node)


def _failure(error: BaseException) -> Failure:
    if isinstance(error, NodeError):
        return error.failure
    if isinstance(error, MemoryError):
        error = LimitExceeded("the run needs more memory than its process may have")
    code = getattr(error, "code", None)
    code = code if isinstance(code, str) else "NODE_FAILED"
    name, retryable = type(error).__name__, not isinstance(error, DalSegnoError | ExpressionFailed)
    if isinstance(error, ExpressionFailed):
        name = "ExpressionFailed"
    elif isinstance(error, NotFound):
        code = "NOT_FOUND"
    return Failure(said_by(error) or name, code, name, retryable=retryable)


def _storable(failure: Failure, node: str | None) -> Failure:
    return Failure(
        bounded_text(failure.message),
        bounded_text(failure.code),
        bounded_text(failure.type),
        _details(failure.details),
        node,
        failure.retryable,
        failure.retry_after,
        None if failure.traceback is None else bounded_traceback(failure.traceback),
    )


def bounded_text(words: str) -> str:
    """Valid Unicode of a bearable length."""
    if len(words) > LONGEST_MESSAGE:
        words = f"{words[:LONGEST_MESSAGE]}… ({len(words):,} characters)"
    return words if words.isascii() else words.encode(errors="replace").decode()


def _details(details: dict[str, Any] | None) -> dict[str, Any] | None:
    try:
        encode_value(details, "the error's details")
    except NotJson as problem:
        return {"not_json": str(problem)}
    return details


def _timed_out(node: Node) -> Failure:
    return Failure(
        f"node '{node.id}' did not end within its timeout of {node.timeout:g} s",
        code="TIMEOUT",
        type="TimeoutError",
        node=node.id,
    )
