"""Running one node: load what it references, render its parameters, execute it, and turn exceptions into failures.

Nearly every exception of user code is a failure of that code, and never of the worker. The failure keeps the
traceback.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import linecache
import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import msgspec

from dalsegno.core.graph.step_input import StepInput
from dalsegno.core.values import storable_details
from dalsegno.engine.definitions import Program
from dalsegno.engine.secrets.redaction import Redactor
from dalsegno.engine.settings import DEFAULT_LIMITS, EngineLimits
from dalsegno.engine.steps.budget import Meters, is_light
from dalsegno.engine.steps.contexts import NO_OUTPUTS, LogSink, RunContext
from dalsegno.engine.steps.values import Loader, Lookup, load_nothing
from dalsegno.errors import DalSegnoError, LimitExceeded, NotFound, OperatorError, is_debugging
from dalsegno.graph.plan import Node
from dalsegno.lang import ExpressionFailed
from dalsegno.lang.runtime.limits import Heavy
from dalsegno.model.failure import Failure
from dalsegno.ports.node import NodeError, NodeType, NodeTypes
from dalsegno.ports.transactions import TransactionLost

OUTER_FRAMES, INNER_FRAMES = 10, 20
"""Frames of a traceback that are kept: from its beginning, and from where the exception was raised."""
LONGEST_LINE, LONGEST_TRACED_MESSAGE = 200, 1_000
MOST_CAUSES, MOST_MEMBERS, DEEPEST_GROUP = 4, 5, 2
LARGEST_TRACEBACK = 8 * 1024
"""Characters of a traceback, which is stored with the failure of the task or node and with that of the execution."""

OURS = str(Path(__file__).parents[2]) + os.sep
MACHINERY = tuple(str(Path(file).parent) + os.sep for file in (asyncio.__file__, concurrent.futures.__file__))
"""Files between our frames and the first frame of user code."""
HEADER = "Traceback (most recent call last):"
CAUSE = "The above exception was the direct cause of the following exception:"
CONTEXT = "During handling of the above exception, another exception occurred:"

Redact = Callable[[str], str]


class PassesThrough(BaseException):
    """Base of exceptions that the engine raises through user code; none of them is a failure."""


def is_failure(error: BaseException) -> bool:
    """Return True if an exception is a failure of the code that raised it. The others concern the caller: a requested
    cancellation, a discarded coroutine, and Ctrl+C.
    """
    if isinstance(error, Exception):
        return True
    if isinstance(error, PassesThrough | Heavy):
        return False
    if isinstance(error, asyncio.CancelledError):
        run = _current_task()
        return run is None or not run.cancelling()
    if isinstance(error, GeneratorExit):
        return _current_task() is not None
    return not (isinstance(error, KeyboardInterrupt) and _may_be_ctrl_c())


def _may_be_ctrl_c() -> bool:
    """Return True if Python itself may have raised KeyboardInterrupt: `asyncio.run` handles Ctrl+C, and only the main
    thread is interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _current_task() -> asyncio.Task[object] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs here
        return None


# -- tracebacks
# --------------------------------------------------------------------------------------------------------


def traceback_of(error: BaseException, redact: Redact = str) -> str | None:
    """Return the traceback in the user's own files, with causes and members of groups, of bounded length. None if it
    contains no frame of user code: errors of built-in nodes need none. ``redact`` receives whole texts, before
    anything is cut.
    """
    if not any(_shown(each.__traceback__) for each in _related(error)):
        return None
    return bounded_traceback("\n".join(_chain(error, redact, 0)))


def bounded_traceback(text: str) -> str:
    """Shorten a traceback, keeping the end with the exception and its place, and the beginning with the callers."""
    text = text if text.isascii() else text.encode(errors="replace").decode()
    if len(text) <= LARGEST_TRACEBACK:
        return text
    head, tail = LARGEST_TRACEBACK // 4, LARGEST_TRACEBACK * 3 // 4
    return f"{text[:head]}\n… {len(text) - head - tail:,} characters are left out …\n{text[-tail:]}"


def _related(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and those shown with it."""
    for each, _ in _causes(error):
        yield each
        if isinstance(each, BaseExceptionGroup):
            yield from each.exceptions[:MOST_MEMBERS]


def _causes(error: BaseException) -> list[tuple[BaseException, str]]:
    """Return the exception and its causes, each with the phrase that joins it to its own cause."""
    found: list[tuple[BaseException, str]] = []
    current: BaseException | None = error
    while current is not None and len(found) < MOST_CAUSES and all(current is not each for each, _ in found):
        cause, words = current.__cause__, CAUSE
        if cause is None and not current.__suppress_context__:
            cause, words = current.__context__, CONTEXT
        found.append((current, words))
        current = cause
    return found


def _chain(error: BaseException, redact: Redact, depth: int) -> list[str]:
    """Return the lines as Python prints them, causes first."""
    links = _causes(error)
    lines: list[str] = []
    for number, (each, words) in reversed(list(enumerate(links))):
        if number < len(links) - 1:
            lines += ["", words, ""]
        lines += _single(each, redact, depth)
    return lines


def _single(error: BaseException, redact: Redact, depth: int) -> list[str]:
    frames = _shown(error.__traceback__)
    lines = [HEADER, *(redact(line) for line in frames)] if frames else []
    message = _cut(redact(message_of(error)), LONGEST_TRACED_MESSAGE)
    name = _cut(redact(_name(type(error))), LONGEST_LINE)
    lines.append(f"{name}: {message}" if message else name)
    notes = getattr(error, "__notes__", None)
    if isinstance(notes, list):
        lines += [
            _cut(redact(note), LONGEST_TRACED_MESSAGE)
            for note in notes[:MOST_MEMBERS]
            if isinstance(note, str)
        ]
    if isinstance(error, BaseExceptionGroup) and depth < DEEPEST_GROUP:
        lines += _members(error.exceptions, redact, depth)
    return lines


def _members(members: tuple[BaseException, ...], redact: Redact, depth: int) -> list[str]:
    lines: list[str] = []
    for number, each in enumerate(members[:MOST_MEMBERS], 1):
        lines.append(f"  +---------------- {number} of {len(members)} ----------------")
        lines += [f"  | {line}" for line in _chain(each, redact, depth + 1)]
    if len(members) > MOST_MEMBERS:
        lines.append(f"  | … and {len(members) - MOST_MEMBERS} more")
    return lines


def message_of(error: BaseException) -> str:
    """Return the message of an exception, empty if it raises while it is formatted."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a user's own ``__str__`` may do anything
        return ""


def _name(kind: type) -> str:
    module = kind.__module__
    return kind.__qualname__ if module in ("builtins", "__main__") else f"{module}.{kind.__qualname__}"


def _shown(traceback: TracebackType | None) -> list[str]:
    """Return the lines of user code frames, outermost first; both ends of a deep recursion."""
    outer: list[str] = []
    inner: deque[tuple[FrameType, int]] = deque(maxlen=INNER_FRAMES)
    left_out = 0
    for frame, line in _frames(traceback):
        if len(outer) < 2 * OUTER_FRAMES:
            outer += _lines(frame, line)
            continue
        left_out += len(inner) == INNER_FRAMES
        inner.append((frame, line))
    skipped = [f"  … {left_out:,} frames are left out …"] if left_out else []
    return [*outer, *skipped, *(text for frame, line in inner for text in _lines(frame, line))]


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    shows_all, is_inside = is_debugging(), False
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        is_ours = file.startswith(OURS)
        is_inside = is_inside or not (is_ours or file.startswith(MACHINERY))
        if shows_all or (is_inside and not is_ours):
            yield traceback.tb_frame, traceback.tb_lineno or 0
        traceback = traceback.tb_next


def _lines(frame: FrameType, number: int) -> list[str]:
    """Return exactly two lines per frame, so that they can be counted."""
    code = frame.f_code
    linecache.checkcache(code.co_filename)
    text = linecache.getline(code.co_filename, number, frame.f_globals).strip()
    place = f'  File "{code.co_filename}", line {number}, in {code.co_name}'
    return [_cut(place, 2 * LONGEST_LINE), _cut(f"    {text}" if text else "    …", LONGEST_LINE)]


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text):,} characters)"


logger = logging.getLogger("dalsegno.steps")

LOG_HEADER = "Raised at (most recent call last):"
LONGEST_MESSAGE = 10_000
"""Characters of an error's message, which is stored several times."""


class OnlyRendered(PassesThrough):
    """The exception that carries the parameters of a node to the process that requested them and runs the node
    itself.
    """

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
        """Parameters rendered in a subprocess, by token."""
        self.only_renders = False
        """Whether runs with effects are left to the process that requested them."""

    async def run(self, program: Program, step_input: StepInput, payload: Any = None) -> Any:
        """Run a node and return its output or its Failure. Only exceptions that end the worker pass through, and
        those of a store that cannot be read before the node has begun.
        """
        node = step_input.node
        limit: asyncio.Timeout | None = None
        context: RunContext | None = None
        try:
            node_type = self.types.get(node.type)
            lookup: Lookup = load_nothing
            outputs = NO_OUTPUTS
            if node_type.needs:
                lookup, outputs = await self._outputs_for(program, step_input, node_type, payload)
            elif node.parameters.roots:
                roots = node.parameters.roots
                lookup = await self.loader.lookup(
                    step_input.lease.execution, step_input.body, roots, program.meta
                )
            context = RunContext(
                step_input.lease,
                lookup,
                payload,
                self.services,
                self.log,
                self._meters,
                step_input.now,
                step_input,
                program,
                outputs,
                node_type.pure,
                step_input.retry,
            )
            parameters = program.parsed.get(node)
            if parameters is None:
                parameters = await self._parameters(program, step_input, node_type, context)
            if not node_type.pure:
                # Effects happen once, and application code is not bound by the limits of light steps.
                is_light.set(False)
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
            _log_failure(step_input, failure)
            return failure
        finally:
            if context is not None:
                step_input.retry = context.retry
            if self.rendered:
                self.rendered.pop(step_input.lease.token, None)

    def has_effects(self, node: Node) -> bool:
        return self.types.find(node.type) is not None and not self.types.get(node.type).pure

    async def _with_effects(self, step_input: StepInput, context: RunContext) -> Mapping[str, Any]:
        """Return the rendered parameters of a node with effects: rendered now, unless a subprocess has."""
        if self.rendered and (known := self.rendered.get(step_input.lease.token)) is not None:
            return known
        template = step_input.node.parameters.template
        return await self._meters.evaluate(
            lambda meter: template.render(context.lookup, now=context.now, meter=meter)
        )

    async def _outputs_for(
        self, program: Program, step_input: StepInput, node_type: NodeType, payload: Any
    ) -> tuple[Lookup, Mapping[str, Any]]:
        """Return the lookup of what the node's parameters mention, and the outputs of its predecessors if its type
        needs them.
        """
        node = step_input.node
        predecessors: tuple[str, ...] = ()
        # A payload passed by the caller may not be stored yet, and need not be loaded.
        handed = ("$payload",) if payload is not None else ()
        if "$predecessors" in node_type.needs:
            predecessors = tuple(edge.src for edge in node.in_edges)
        roots = node.parameters.roots.union(node_type.needs.difference(handed), predecessors)
        lookup = await self.loader.lookup(step_input.lease.execution, step_input.body, roots, program.meta)
        return lookup, _outputs(predecessors, lookup) if predecessors else NO_OUTPUTS

    async def _parameters(
        self, program: Program, step_input: StepInput, node_type: NodeType, context: RunContext
    ) -> Any:
        node = step_input.node
        template = node.parameters.template
        if template.constant:
            rendered = template.value
        elif not node_type.pure and (self.rendered or template.needs_meter):
            rendered = await self._with_effects(step_input, context)
        else:
            meter = context.meter if template.needs_meter else None
            rendered = template.render(context.lookup, now=context.now, meter=meter)
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


def _log_failure(step_input: StepInput, failure: Failure) -> None:
    """Log a failure with the frames of user code."""
    lease = step_input.lease
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
    """Return the traceback without the word by which logs are searched for errors of Dal Segno itself."""
    return "" if failure.traceback is None else "\n" + failure.traceback.replace(HEADER, LOG_HEADER)


def failure_of(error: BaseException, node: Node, secrets: Redactor | None = None) -> Failure:
    """Return a node's exception as a value."""
    return storable_failure(error, node.id, secrets)


def storable_failure(error: BaseException, node: str | None, secrets: Redactor | None = None) -> Failure:
    """Return any exception as a value that every store can hold: ours keep their codes, others fail under their class
    name. ``secrets`` are removed before anything is cut, because half of a secret would not be recognised.
    """
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
    return Failure(message_of(error) or name, code, name, retryable=retryable)


def _storable(failure: Failure, node: str | None) -> Failure:
    return Failure(
        bounded_text(failure.message),
        bounded_text(failure.code),
        bounded_text(failure.type),
        storable_details(failure.details),
        node,
        failure.retryable,
        failure.retry_after,
        None if failure.traceback is None else bounded_traceback(failure.traceback),
    )


def bounded_text(words: str) -> str:
    """Return valid Unicode of bounded length."""
    if len(words) > LONGEST_MESSAGE:
        words = f"{words[:LONGEST_MESSAGE]}… ({len(words):,} characters)"
    return words if words.isascii() else words.encode(errors="replace").decode()


def _timed_out(node: Node) -> Failure:
    return Failure(
        f"node '{node.id}' did not end within its timeout of {node.timeout:g} s",
        code="TIMEOUT",
        type="TimeoutError",
        node=node.id,
    )
