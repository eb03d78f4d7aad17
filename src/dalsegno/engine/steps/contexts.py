"""The context of a running node or task: values, expressions, credentials, transactions, log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, overload

from dalsegno.core.graph.step_input import StepInput
from dalsegno.engine.definitions import Program
from dalsegno.engine.secrets.redaction import Redactor
from dalsegno.engine.secrets.vault import Vault
from dalsegno.engine.steps.budget import Meters, evaluated_each
from dalsegno.engine.steps.transactions import SERVICE as TRANSACTIONS
from dalsegno.engine.steps.transactions import Block, StepTransactions
from dalsegno.engine.steps.values import Lookup
from dalsegno.errors import CredentialNotFound, InternalError, InvalidInput, Unavailable, UsageError
from dalsegno.lang import Expression
from dalsegno.lang.runtime.limits import Meter
from dalsegno.model.failure import RetryPolicy
from dalsegno.model.token import Lease
from dalsegno.ports.node import NodeError
from dalsegno.ports.secrets import Credential

SERVICE = "secrets"

LogSink = Callable[[str, str, str, str], None]
"""Arguments: execution, node, level, message."""

NO_OUTPUTS: Mapping[str, Any] = {}
NO_EXPRESSIONS: Mapping[str, Expression] = {}
NO_ROOTS: Lookup = dict[str, Any]().get
"""A script passes finished values: a task looks nothing up."""


class RunContext:
    """The implementation of ``ports.node.NodeContext``: one attempt to run a node of a graph, a
    task of a script, or a library node in a script.

    Plain attributes that change (``beats``, ``cancelled``) are safe to read and write from any
    thread: synchronous tasks run in threads of their own.
    """

    # Every step makes one: what most runs leave as it is, is set once, here.
    idempotency_key: str
    indexes: tuple[int, ...] = ()
    credential_name: str | None = None
    outputs: Mapping[str, Any] = NO_OUTPUTS
    workflow = ""
    version = 0
    beats = 0
    cancelled = False
    retry: RetryPolicy | None = None
    """The policy of the registered task, used unless the document or the call has one."""
    secrets: Redactor | None = None
    """None until the run resolves its first credential."""
    _input: Any = None
    _expressions = NO_EXPRESSIONS
    _meter: Meter | None = None
    _is_pure = False

    def __init__(
        self,
        lease: Lease,
        lookup: Lookup,
        payload: Any,
        services: Mapping[str, Any],
        log: LogSink,
        meters: Meters,
        now: float,
    ) -> None:
        self.lease = lease
        self.lookup = lookup
        self.services = services
        self.now = now
        self.idempotency_key = lease.token
        self.node_id = self.node_name = lease.node
        self._payload = payload
        self._log = log
        self._meters = meters

    @classmethod
    def of_node(
        cls,
        program: Program,
        step_input: StepInput,
        lookup: Lookup,
        payload: Any,
        outputs: Mapping[str, Any],
        services: Mapping[str, Any],
        log: LogSink,
        meters: Meters,
        is_pure: bool,
    ) -> RunContext:
        """Return the context of a node of a graph."""
        node, loops = step_input.node, step_input.body.loops
        run = cls(step_input.lease, lookup, payload, services, log, meters, step_input.now)
        run.workflow = program.definition.name
        run.version = program.definition.version
        run.node_name = node.name
        run.credential_name = node.credential
        run.outputs = outputs
        run.retry = step_input.retry
        run._expressions = node.parameters.expressions
        run._is_pure = is_pure
        if loops:
            run.indexes = tuple([loop.index for loop in loops])
        return run

    @classmethod
    def of_task(
        cls,
        lease: Lease,
        promise: int | None,
        payload: Any,
        key: str | None,
        services: Mapping[str, Any],
        log: LogSink,
        meters: Meters,
        now: float,
        workflow: str,
    ) -> RunContext:
        """Return the context of a task of a script. ``promise`` distinguishes it from others of the
        same name.
        """
        run = cls(lease, NO_ROOTS, payload, services, log, meters, now)
        run.workflow = workflow
        run._input = payload
        if key:
            run.idempotency_key = key
        if promise is not None:
            run.indexes = (promise,)
        return run

    def enter_node(
        self, type_name: str, working: Any, expressions: Mapping[str, Expression], meter: Meter
    ) -> None:
        """Continue as the context of a library node, which this task of a script runs. Its only
        root is ``$json``: a script has no preceding nodes.
        """
        self.node_id = self.node_name = type_name
        self.lookup = {"$json": working}.__getitem__
        self._payload = self._input = working
        self._expressions = expressions
        self._meter = meter

    # -- the run

    @property
    def execution_id(self) -> str:
        return self.lease.execution

    @property
    def attempt(self) -> int:
        return self.lease.attempt

    def heartbeat(self) -> None:
        self.beats += 1

    def log(self, message: str, level: str = "info") -> None:
        self._log(self.lease.execution, self.lease.node, level, self.redact(message))

    async def give_way(self) -> None:
        await asyncio.sleep(0)

    def use_retry(self, policy: RetryPolicy) -> None:
        """Set the retry policy of this run, unless the document or the call has one."""
        self.retry = policy

    # -- values and expressions

    @property
    def payload(self) -> Any:
        return self._payload if self._payload is not None else self._root("$payload")

    @property
    def input(self) -> Any:
        return self._input if self._input is not None else self._root("$trigger")

    def _root(self, root: str) -> Any:
        try:
            return self.lookup(root)
        except KeyError:
            return None

    @property
    def meter(self) -> Meter:
        """The meter shared by all expressions of this run. A run with effects cannot be given up
        during their evaluation.
        """
        if self._meter is None:
            self._meter = self._meters.new(may_be_light=self._is_pure)
        return self._meter

    def has_expression(self, parameter: str) -> bool:
        return parameter in self._expressions

    def evaluate(self, parameter: str, local: Mapping[str, Any] | None = None) -> Any:
        """Evaluate an expression. Local names take precedence over roots: inside a list node
        ``$item`` is the list's item, not the split's.
        """
        if self._expressions is NO_EXPRESSIONS:
            raise InvalidInput(
                f"'{self.node_id}' evaluates its parameter '{parameter}' in a graph; a script does that itself"
            )
        meter = self.meter
        meter.renew()
        expression = self._expressions[parameter]
        lookup = self.lookup
        if local:
            outer = lookup
            lookup = lambda root: local[root] if root in local else outer(root)  # noqa: E731 - a closure, on purpose
        return expression.evaluate(lookup, now=self.now, local=local, meter=meter)

    async def evaluate_each(self, parameter: str, names: Iterable[Mapping[str, Any] | None]) -> list[Any]:
        return await evaluated_each(lambda local: self.evaluate(parameter, local), names, self.heartbeat)

    # -- credentials

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

    async def _asking(self) -> tuple[str, str]:
        """Return the requesting workflow and the content hash of its definition: both must be
        permitted to use the credential. The hash is empty for a task that runs on its own.
        """
        definition = self.lease.definition
        if self.version:
            return self.workflow, definition
        # This worker may never have loaded the script whose task it runs.
        return await vault_in(self.services).workflow_of(definition) or self.workflow, definition

    def credential(self, name: str | None = None) -> Credential:
        loop = vault_in(self.services).loop
        if loop is None or loop is _running_loop():
            raise UsageError("in an async function write `await ctx.acredential(…)`; this one would block it")
        return asyncio.run_coroutine_threadsafe(self.acredential(name), loop).result()

    def redact(self, text: str) -> str:
        return text if self.secrets is None else self.secrets.text(text)

    # -- transactions

    @overload
    def transaction(self) -> AbstractAsyncContextManager[Any]: ...

    @overload
    def transaction(self, work: Callable[[Any], object]) -> None: ...

    def transaction(
        self, work: Callable[[Any], object] | None = None
    ) -> AbstractAsyncContextManager[Any] | None:
        transactions = self.services.get(TRANSACTIONS)
        if not isinstance(transactions, StepTransactions):
            raise InternalError("the engine gives tasks no service 'transactions'")
        if work is None:
            return Block(transactions, self.lease, self.retry)
        transactions.add(self.lease, work, self.retry)
        return None


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
