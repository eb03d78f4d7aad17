"""Contexts of running nodes and tasks: of nodes in graphs, of tasks, and of library nodes in scripts. Each resolves
credentials and remembers the values that must not leave the run.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dalsegno.core.graph.step_input import StepInput
from dalsegno.core.scripts.token_bodies import decode_task
from dalsegno.engine.definitions import Program
from dalsegno.engine.secrets.redaction import Redactor
from dalsegno.engine.secrets.vault import Vault
from dalsegno.engine.steps.budget import Meters, evaluated_each
from dalsegno.engine.steps.transactions import UsesTransactions
from dalsegno.engine.steps.values import Lookup
from dalsegno.errors import CredentialNotFound, InternalError, InvalidInput, Unavailable, UsageError
from dalsegno.lang import Expression
from dalsegno.lang.runtime.limits import Meter
from dalsegno.model.failure import RetryPolicy
from dalsegno.model.token import Lease
from dalsegno.ports.node import NodeError
from dalsegno.ports.secrets import Credential

SERVICE = "secrets"


class UsesCredentials(ABC):
    """Credentials, as part of every context. ``secrets`` is None until the run resolves its first credential."""

    __slots__ = ("secrets",)

    services: Mapping[str, Any]
    secrets: Redactor | None

    @property
    def credential_name(self) -> str | None:
        """The credential that the document assigns to the node."""
        return None

    @abstractmethod
    async def _asking(self) -> tuple[str, str]:
        """Return the requesting workflow and the content hash of its definition: both must be permitted to use the
        credential. The hash is empty for a task that runs on its own.
        """

    async def acredential(self, name: str | None = None) -> Credential:
        wanted = name if name is not None else self.credential_name
        if wanted is None:
            raise CredentialNotFound(
                "no credential is named here: give its name, or the node's `credentials` in the document"
            )
        try:
            found = await vault_in(self.services).resolve(wanted, *await self._asking())
        except Unavailable as error:
            # Nothing has happened yet: a retry may reach the store again.
            raise NodeError(str(error), code=error.code) from error
        redactor = self.secrets or Redactor()
        redactor.learn(found)
        self.secrets = redactor
        return found

    def credential(self, name: str | None = None) -> Credential:
        loop = vault_in(self.services).loop
        if loop is None or loop is _running_loop():
            raise UsageError("in an async function write `await ctx.acredential(…)`; this one would block it")
        return asyncio.run_coroutine_threadsafe(self.acredential(name), loop).result()

    def redact(self, text: str) -> str:
        return text if self.secrets is None else self.secrets.text(text)


def vault_in(services: Mapping[str, Any]) -> Vault:
    vault = services.get(SERVICE)
    if not isinstance(vault, Vault):
        raise InternalError("the engine gives nodes no vault as service 'secrets'")
    return vault


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


LogSink = Callable[[str, str, str, str], None]
"""Arguments: execution, node, level, message."""


class RunContext(UsesCredentials, UsesTransactions):
    """The ports.node.NodeContext of one attempt to run a node."""

    __slots__ = (
        "_is_pure",
        "_log",
        "_meter",
        "_meters",
        "_payload",
        "_step_input",
        "beats",
        "cancelled",
        "lookup",
        "outputs",
        "program",
        "services",
    )

    def __init__(
        self,
        program: Program,
        step_input: StepInput,
        lookup: Lookup,
        payload: Any,
        outputs: Mapping[str, Any],
        services: Mapping[str, Any],
        log: LogSink,
        meters: Meters,
        is_pure: bool,
    ) -> None:
        self.program = program
        self.lookup = lookup
        self.outputs = outputs
        self.services = services
        self.beats = 0
        self.cancelled = False
        self.secrets = None
        self._payload = payload
        self._step_input = step_input
        self._log = log
        self._meters = meters
        self._is_pure = is_pure
        self._meter: Meter | None = None

    @property
    def execution_id(self) -> str:
        return self._step_input.lease.execution

    @property
    def workflow(self) -> str:
        return self.program.definition.name

    @property
    def version(self) -> int:
        return self.program.definition.version

    @property
    def node_id(self) -> str:
        return self._step_input.lease.node

    @property
    def node_name(self) -> str:
        return self._step_input.node.name

    @property
    def own_lease(self) -> Lease:
        return self._step_input.lease

    @property
    def own_retry(self) -> RetryPolicy | None:
        return self._step_input.retry

    @property
    def idempotency_key(self) -> str:
        return self._step_input.lease.token

    @property
    def attempt(self) -> int:
        return self._step_input.lease.attempt

    @property
    def now(self) -> float:
        return self._step_input.now

    @property
    def indexes(self) -> tuple[int, ...]:
        return tuple(loop.index for loop in self._step_input.body.loops)

    @property
    def payload(self) -> Any:
        if self._payload is not None:
            return self._payload
        try:
            return self.lookup("$payload")
        except KeyError:
            return None

    @property
    def input(self) -> Any:
        try:
            return self.lookup("$trigger")
        except KeyError:
            return None

    def evaluate(self, parameter: str, local: Mapping[str, Any] | None = None) -> Any:
        """Evaluate an expression. Local names take precedence over roots: inside a list node ``$item`` is the list's
        item, not the split's.
        """
        meter = self.meter
        meter.renew()
        expression = self._step_input.node.parameters.expressions[parameter]
        lookup = self.lookup
        if local:
            outer = lookup
            lookup = lambda root: local[root] if root in local else outer(root)  # noqa: E731 - a closure, on purpose
        return expression.evaluate(lookup, now=self.now, local=local, meter=meter)

    async def evaluate_each(self, parameter: str, names: Iterable[Mapping[str, Any] | None]) -> list[Any]:
        return await evaluated_each(lambda local: self.evaluate(parameter, local), names, self.heartbeat)

    async def give_way(self) -> None:
        await asyncio.sleep(0)

    @property
    def meter(self) -> Meter:
        """The meter shared by all expressions of this run. A run with effects cannot be given up during their
        evaluation.
        """
        if self._meter is None:
            self._meter = self._meters.new(may_be_light=self._is_pure)
        return self._meter

    def has_expression(self, parameter: str) -> bool:
        return parameter in self._step_input.node.parameters.expressions

    def log(self, message: str, level: str = "info") -> None:
        self._log(self.execution_id, self.node_id, level, self.redact(message))

    @property
    def credential_name(self) -> str | None:
        return self._step_input.node.credential

    async def _asking(self) -> tuple[str, str]:
        return self.workflow, self.program.definition.hash

    def heartbeat(self) -> None:
        """Count a heartbeat. Plain attribute writes are safe from any thread, and synchronous tasks call this from
        theirs.
        """
        self.beats += 1

    def use_retry(self, policy: RetryPolicy) -> None:
        """Set the retry policy of this run, unless the document has one."""
        self._step_input.retry = policy


class TaskRunContext(UsesCredentials, UsesTransactions):
    """The ports.node.NodeContext of one attempt to run a task of a script."""

    __slots__ = (
        "_key",
        "_log",
        "beats",
        "cancelled",
        "input",
        "lease",
        "now",
        "outputs",
        "payload",
        "retry",
        "services",
        "workflow",
    )

    def __init__(
        self,
        lease: Lease,
        payload: Any,
        key: str | None,
        services: Mapping[str, Any],
        log: LogSink,
        now: float,
        workflow: str,
    ) -> None:
        self.lease = lease
        self.payload = self.input = payload
        self.services = services
        self.outputs: Mapping[str, Any] = {}
        self.retry: RetryPolicy | None = None
        self.beats = 0
        self.cancelled = False
        self.secrets = None
        self.now = now
        self.workflow = workflow
        self._key = key
        self._log = log

    @property
    def execution_id(self) -> str:
        return self.lease.execution

    @property
    def version(self) -> int:
        return 0

    @property
    def node_id(self) -> str:
        return self.lease.node

    @property
    def node_name(self) -> str:
        return self.lease.node

    @property
    def own_lease(self) -> Lease:
        return self.lease

    @property
    def own_retry(self) -> RetryPolicy | None:
        return self.retry

    @property
    def idempotency_key(self) -> str:
        return self._key or self.lease.token

    @property
    def attempt(self) -> int:
        return self.lease.attempt

    @property
    def indexes(self) -> tuple[int, ...]:
        """The number of the task's promise, which distinguishes it from others of the same name."""
        promise = decode_task(self.lease.data).promise
        return () if promise is None else (promise,)

    def lookup(self, root: str) -> Any:
        """Return the value of a root. A script passes finished values to its nodes, so every root is the payload."""
        if root in ("$json", "$payload", "$trigger"):
            return self.payload
        raise KeyError(root)

    def evaluate(self, parameter: str, local: Mapping[str, Any] | None = None) -> Any:
        raise InvalidInput(
            f"'{self.lease.node}' evaluates its parameter '{parameter}' in a graph; a script does that itself"
        )

    async def evaluate_each(self, parameter: str, names: Iterable[Mapping[str, Any] | None]) -> list[Any]:
        return [self.evaluate(parameter, local) for local in names]

    async def give_way(self) -> None:
        await asyncio.sleep(0)

    def has_expression(self, parameter: str) -> bool:
        return False

    def log(self, message: str, level: str = "info") -> None:
        self._log(self.execution_id, self.node_id, level, self.redact(message))

    async def _asking(self) -> tuple[str, str]:
        """Ask the vault: this worker may never have loaded the script whose task it runs."""
        definition = self.lease.definition
        named = await vault_in(self.services).workflow_of(definition)
        return named or self.workflow, definition

    def heartbeat(self) -> None:
        self.beats += 1

    def use_retry(self, policy: RetryPolicy) -> None:
        """Set the retry policy of the registered task; options of the call take precedence."""
        self.retry = policy


class LibraryNodeContext(UsesTransactions):
    """The ports.node.NodeContext of a library node, around the context of the task that runs the node."""

    __slots__ = ("_expressions", "_meter", "_task", "_working", "node_id", "outputs", "services")

    def __init__(
        self,
        task: TaskRunContext,
        type_name: str,
        working: Any,
        expressions: Mapping[str, Expression],
        meter: Meter,
    ) -> None:
        self._task = task
        self._working = working
        self._expressions = expressions
        self._meter = meter
        self.node_id = type_name
        self.services = task.services
        self.outputs: Mapping[str, Any] = {}

    @property
    def execution_id(self) -> str:
        return self._task.execution_id

    @property
    def workflow(self) -> str:
        return self._task.workflow

    @property
    def version(self) -> int:
        return self._task.version

    @property
    def node_name(self) -> str:
        return self.node_id

    @property
    def idempotency_key(self) -> str:
        return self._task.idempotency_key

    @property
    def attempt(self) -> int:
        return self._task.attempt

    @property
    def now(self) -> float:
        return self._task.now

    @property
    def indexes(self) -> tuple[int, ...]:
        return self._task.indexes

    @property
    def payload(self) -> Any:
        return self._working

    @property
    def input(self) -> Any:
        return self._working

    @property
    def cancelled(self) -> bool:
        return self._task.cancelled

    @cancelled.setter
    def cancelled(self, is_so: bool) -> None:
        self._task.cancelled = is_so

    @property
    def beats(self) -> int:
        return self._task.beats

    def lookup(self, root: str) -> Any:
        """Return the value of ``$json``, the only root: a script has no preceding nodes."""
        if root == "$json":
            return self._working
        raise KeyError(root)

    def evaluate(self, parameter: str, local: Mapping[str, Any] | None = None) -> Any:
        names = local or {}
        self._meter.renew()
        return self._expressions[parameter].evaluate(
            lambda root: names[root] if root in names else self.lookup(root),
            now=self.now,
            local=local,
            meter=self._meter,
        )

    async def evaluate_each(self, parameter: str, names: Iterable[Mapping[str, Any] | None]) -> list[Any]:
        return await evaluated_each(lambda local: self.evaluate(parameter, local), names, self.heartbeat)

    async def give_way(self) -> None:
        await asyncio.sleep(0)

    def has_expression(self, parameter: str) -> bool:
        return parameter in self._expressions

    def log(self, message: str, level: str = "info") -> None:
        self._task.log(message, level)

    def heartbeat(self) -> None:
        self._task.heartbeat()

    @property
    def credential_name(self) -> str | None:
        return self._task.credential_name

    def credential(self, name: str | None = None) -> Credential:
        return self._task.credential(name)

    async def acredential(self, name: str | None = None) -> Credential:
        return await self._task.acredential(name)

    def redact(self, text: str) -> str:
        return self._task.redact(text)

    @property
    def own_lease(self) -> Lease:
        return self._task.own_lease

    @property
    def own_retry(self) -> RetryPolicy | None:
        return self._task.own_retry

    def use_retry(self, policy: RetryPolicy) -> None:
        self._task.use_retry(policy)
