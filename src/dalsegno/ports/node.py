"""The node port: what the engine calls on a node type, and what a node may call on the engine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, overload

from dalsegno.graph.catalog import NodeSpec
from dalsegno.model.failure import Failure
from dalsegno.ports.secrets import Credential


class NodeError(Exception):
    """Raised by a node to fail with a chosen code. Anything else a node raises fails with its class name."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "NODE_FAILED",
        details: Mapping[str, Any] | None = None,
        retryable: bool = True,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.failure = Failure(
            message=message,
            code=code,
            type=code,
            details=dict(details) if details is not None else None,
            retryable=retryable,
            retry_after=retry_after,
        )


class Unacceptable(Exception):
    """Raised by a node's ``receive`` for a signal it cannot use: the node keeps waiting."""


@dataclass(frozen=True, slots=True)
class Route:
    """The node's output, and the ids of the out-edges to take (conditional, switch)."""

    output: Any
    edges: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FanOut:
    """A split's items."""

    items: list[Any]
    window: int
    on_item_error: str | None = None


@dataclass(frozen=True, slots=True)
class SleepUntil:
    """Park the token until ``due`` (Unix seconds); on waking, the node's output is ``output``."""

    due: float
    output: Any


@dataclass(frozen=True, slots=True)
class AwaitSignal:
    """Park the token until a signal of this name arrives; its payload (as ``NodeType.receive`` takes it) is the output.

    After ``timeout`` seconds the node fails with ``TIMEOUT``, which is not retried; without one, the node's own
    ``timeout`` applies. ``question`` is what people are asked meanwhile: the list of open approvals shows it.
    """

    name: str
    timeout: float | None = None
    question: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StartChild:
    """Start an execution.

    With ``wait`` the token is parked until it has ended, and its output is the node's; without, the node's output
    is its ``{id}`` at once. Only types declared with ``children=True`` may wait for one.

    ``definition`` is the content hash of one exact definition; ``workflow`` is then only its name.
    """

    workflow: str
    input: Any = None
    version: int | str | None = None
    wait: bool = True
    definition: str | None = None


@dataclass(frozen=True, slots=True)
class Working:
    """An output that also becomes the working payload ``$json``."""

    output: Any
    json: Any


class OutputStream(Protocol):
    """A stream of the execution, to which chunks are appended."""

    def write(self, chunk: Any) -> None:
        """Append a chunk: text, or other data as a task returns it."""

    def close(self) -> None:
        """Mark the stream as complete: its readers end."""


class NodeContext(Protocol):
    """What a running node or task may ask of the engine. ``NodeContext`` and ``TaskContext`` of
    ``dalsegno`` are this class.

    One object belongs to one attempt. It is the same for a node of a graph (*graph*), a task that a
    script or a Python workflow calls (*task*), and a node that a script runs with ``Node.run``
    (*library node*). They differ only where a member says so.
    """

    outputs: Mapping[str, Any]
    """Outputs of the direct predecessors that are in the context, by node id, in edge order, if the
    node type needs ``$predecessors``. Empty for tasks and library nodes.
    """
    services: Mapping[str, Any]
    """Engine-wide resources by name: ``http`` (client pool), ``tasks`` (registry)."""

    @property
    def execution_id(self) -> str: ...

    @property
    def workflow(self) -> str:
        """The name of the workflow."""

    @property
    def version(self) -> int:
        """The version of the workflow; 0 for tasks and library nodes."""

    @property
    def node_id(self) -> str:
        """Graph: the node's id. Task: the task's name. Library node: the node type."""

    @property
    def node_name(self) -> str:
        """Graph: the name that the document gives to the node. Otherwise the same as ``node_id``."""

    @property
    def idempotency_key(self) -> str:
        """A key that is the same in all attempts of this run: pass it to the services that the run
        calls.
        """

    @property
    def attempt(self) -> int:
        """1 for the first."""

    @property
    def now(self) -> float:
        """The time at which the attempt began, in Unix seconds."""

    @property
    def indexes(self) -> tuple[int, ...]:
        """Graph: the item's number in every split around the node, outermost first. Otherwise the
        number of the promise, which distinguishes several calls of one task.
        """

    @property
    def payload(self) -> Any:
        """Graph: the payload of the incoming edge, if the node type needs ``$payload``. Task: its
        input. Library node: the working payload.
        """

    @property
    def input(self) -> Any:
        """Graph: the start payload, if the node type needs ``$trigger``. Otherwise the same as
        ``payload``.
        """

    def lookup(self, root: str) -> Any:
        """Return the value of a root; raises KeyError for one that has none.

        Graph: the roots that the node's parameters mention or its type needs (``$json``,
        ``$trigger``, a node id …). Task: ``$json``, ``$payload`` and ``$trigger`` are its input.
        Library node: ``$json`` only.
        """

    def evaluate(self, parameter: str, local: Mapping[str, Any] | None = None) -> Any:
        """Evaluate a parameter of kind ``condition`` or ``expression``. Tasks have none: raises
        InvalidInput.
        """

    async def evaluate_each(self, parameter: str, names: Iterable[Mapping[str, Any] | None]) -> list[Any]:
        """Return the parameter's value for each set of local names.

        Unlike ``evaluate`` it lets other work of the process run in between, however long the expressions take.
        """

    async def give_way(self) -> None:
        """Let other work of the process run; for loops over large data, every few milliseconds."""

    def has_expression(self, parameter: str) -> bool:
        """Return True if the document gives that parameter."""

    def log(self, message: str, level: str = "info") -> None:
        """Write a line to the execution's log: ``debug``, ``info``, ``warning``, ``error`` or ``critical``.

        The log is read with ``handle.logs()``. Lines of level ``debug`` are only in the log of
        the worker's process.
        """

    def publish(self, key: str, value: Any) -> None:
        """Publish a value under a key, for those who watch the execution; of each key the newest value is kept.

        It is written at most a tenth of a second later, and of values that follow quickly only the last. Works in
        threads, too.
        """

    def progress(self, done: float, total: float | None = None, text: str | None = None) -> None:
        """Publish how far this run is: ``ctx.progress(3, 10, "page 3")``. It is shown as a bar until the run ends."""

    def stream(self, name: str) -> OutputStream:
        """Return a stream of the execution: ``ctx.stream("answer").write(chunk)``.

        Chunks are written in batches, at most a tenth of a second later. A retry appends to the same stream, and marks
        its first chunk with ``restarts``.
        """

    def heartbeat(self) -> None:
        """Report that a long run is alive."""

    @property
    def cancelled(self) -> bool:
        """Return True if this run was given up: its execution has ended, or its time is over.

        The return value of such a run is ignored. For ordinary functions, which run in threads and cannot be
        interrupted; an async function is cancelled instead.
        """

    @property
    def credential_name(self) -> str | None:
        """Return the credential that the document gives to the node, if any."""

    def credential(self, name: str | None = None) -> Credential:
        """Return a credential by its name, or the node's own; for ordinary functions, which run in threads.

        From then on its values are redacted from what this run returns, raises and logs.
        """

    async def acredential(self, name: str | None = None) -> Credential:
        """Return a credential, for async functions."""

    def redact(self, text: str) -> str:
        """Return the text without the values that this run has resolved.

        For text that a node shortens before it returns it.
        """

    @overload
    def transaction(self) -> AbstractAsyncContextManager[Any]: ...

    @overload
    def transaction(self, work: Callable[[Any], object]) -> None: ...

    def transaction(
        self, work: Callable[[Any], object] | None = None
    ) -> AbstractAsyncContextManager[Any] | None:
        """Open a transaction that is committed together with this run's result, or not at all: exactly once.

        On PostgreSQL a block, ``async with ctx.transaction() as connection:``, with a connection of asyncpg. On
        SQLite ``work``, a short function of a ``sqlite3.Connection``, which runs when the step is committed.
        """


Execute = Callable[[NodeContext, Any], Awaitable[Any]]
Receive = Callable[[Mapping[str, Any], Any], Any]
"""The node's raw parameters and a signal's payload → the node's output; raises Unacceptable."""


@dataclass(frozen=True, slots=True)
class NodeType:
    """A node type as the engine runs it."""

    spec: NodeSpec
    parse: Callable[[Mapping[str, Any]], Any]
    """Rendered parameters → typed parameters; raises NodeError(retryable=False) that names the parameter."""
    execute: Execute
    description: str = ""
    needs: frozenset[str] = frozenset()
    """Roots in addition to those in its parameters: ``$json`` for edit and list nodes, ``$payload``, ``$predecessors``.
    """
    output_schema: Mapping[str, Any] = field(default_factory=dict)
    receive: Receive | None = None
    """Turns a signal's payload into the output; without it, the payload is the output."""
    pure: bool = False
    """A run only computes: it has no effect, needs no service, and may be abandoned and repeated elsewhere."""


class NodeTypes(Protocol):
    """The registry the engine is given. Also a graph Catalog."""

    def find(self, type_name: str) -> NodeSpec | None: ...

    def types(self) -> Sequence[str]: ...

    def added(self) -> Sequence[str]:
        """Return the names and aliases of types that do not come with Dal Segno."""

    def get(self, type_name: str) -> NodeType:
        """Return a type by its canonical name; raises NotFound."""
