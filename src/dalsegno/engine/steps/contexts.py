"""The context of a running node or task: values, expressions, credentials, transactions, log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import MappingProxyType, TracebackType
from typing import Any, NoReturn, overload

from msgspec import Struct

from dalsegno.core.graph.step_input import StepInput
from dalsegno.core.values import decode_value, encode_value
from dalsegno.engine.definitions import Program
from dalsegno.engine.secrets.redaction import Redactor
from dalsegno.engine.secrets.vault import Vault
from dalsegno.engine.steps.budget import Meters, evaluated_each
from dalsegno.engine.steps.task_writes import SERVICE as WRITES
from dalsegno.engine.steps.task_writes import TaskWrites
from dalsegno.engine.steps.values import Lookup
from dalsegno.errors import (
    CredentialNotFound,
    InternalError,
    InvalidInput,
    OperatorError,
    Unavailable,
    UsageError,
)
from dalsegno.lang import Expression
from dalsegno.lang.runtime.limits import Meter
from dalsegno.model.failure import RetryPolicy
from dalsegno.model.published import LARGEST_VALUE, check_key, check_stream, progress_key, progress_value
from dalsegno.model.token import Lease
from dalsegno.ports.node import NodeError
from dalsegno.ports.secrets import Credential
from dalsegno.ports.transactions import StepTransaction, TransactionLost, Transactions, Work

SERVICE = "secrets"

LogSink = Callable[[str, str, str, str], None]
"""Arguments: execution, node, level, message."""

NO_OUTPUTS: Mapping[str, Any] = MappingProxyType({})
NO_EXPRESSIONS: Mapping[str, Expression] = MappingProxyType({})
NO_ROOTS: Lookup = dict[str, Any]().get
"""A script passes finished values: a task looks nothing up."""


class RunContext(Struct, eq=False):
    """The implementation of ``ports.node.NodeContext``: one attempt to run a node of a graph, a
    task of a script, or a library node in a script.

    Plain attributes that change (``beats``, ``cancelled``) are safe to read and write from any
    thread: synchronous tasks run in threads of their own.
    """

    lease: Lease
    lookup: Lookup
    _payload: Any
    services: Mapping[str, Any]
    _log: LogSink
    _meters: Meters
    now: float
    _step: StepInput = None  # type: ignore[assignment]
    """The step of a node; None for a task of a script, which has no graph either."""
    _program: Program | None = None
    outputs: Mapping[str, Any] = NO_OUTPUTS
    _is_pure: bool = False
    retry: RetryPolicy | None = None
    """The policy of the registered task, used unless the document or the call has one."""
    beats: int = 0
    cancelled: bool = False
    secrets: Redactor | None = None
    """None until the run resolves its first credential."""
    _workflow: str = ""
    _type_name: str = ""
    """The library node that this task of a script runs."""
    _key: str = ""
    _promise: int | None = None
    _input: Any = None
    _library_expressions: Mapping[str, Expression] = NO_EXPRESSIONS
    _meter: Meter | None = None

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
        return cls(
            lease,
            NO_ROOTS,
            payload,
            services,
            log,
            meters,
            now,
            _workflow=workflow,
            _input=payload,
            _key=key or "",
            _promise=promise,
        )

    def enter_node(
        self, type_name: str, working: Any, expressions: Mapping[str, Expression], meter: Meter
    ) -> None:
        """Continue as the context of a library node, which this task of a script runs. Its only
        root is ``$json``: a script has no preceding nodes.
        """
        self._type_name = type_name
        self.lookup = {"$json": working}.__getitem__
        self._payload = self._input = working
        self._library_expressions = expressions
        self._meter = meter

    # -- the run

    @property
    def execution_id(self) -> str:
        return self.lease.execution

    @property
    def workflow(self) -> str:
        return self._workflow if self._program is None else self._program.definition.name

    @property
    def version(self) -> int:
        return 0 if self._program is None else self._program.definition.version

    @property
    def node_id(self) -> str:
        return self._type_name or self.lease.node

    @property
    def node_name(self) -> str:
        return self.node_id if self._program is None else self._step.node.name

    @property
    def idempotency_key(self) -> str:
        return self._key or self.lease.token

    @property
    def indexes(self) -> tuple[int, ...]:
        if self._program is not None:
            return tuple([loop.index for loop in self._step.body.loops])
        return () if self._promise is None else (self._promise,)

    @property
    def credential_name(self) -> str | None:
        return None if self._program is None else self._step.node.credential

    @property
    def _expressions(self) -> Mapping[str, Expression]:
        return self._library_expressions if self._program is None else self._step.node.parameters.expressions

    @property
    def attempt(self) -> int:
        return self.lease.attempt

    def heartbeat(self) -> None:
        self.beats += 1

    def log(self, message: str, level: str = "info") -> None:
        said = self.redact(message)
        self._log(self.lease.execution, self.lease.node, level, said)
        writes = self._writes()
        if writes is not None:
            writes.log(self.lease, self.node_id, level, said)

    # -- what others see while it runs

    def publish(self, key: str, value: Any) -> None:
        try:
            name = check_key(key)
        except ValueError as error:
            raise InvalidInput(f"ctx.publish(): {error}") from None
        self._writing("ctx.publish()").publish(self.lease, name, self._shown(name, value))

    def progress(self, done: float, total: float | None = None, text: str | None = None) -> None:
        try:
            value = progress_value(done, total, text)
        except ValueError as error:
            raise InvalidInput(f"ctx.progress(): {error}") from None
        key = progress_key(self.node_id, self.indexes)
        self._writing("ctx.progress()").publish(self.lease, key, self._shown(key, value), passing=True)

    def stream(self, name: str) -> TaskStream:
        try:
            return TaskStream(self, check_stream(name))
        except ValueError as error:
            raise InvalidInput(f"ctx.stream(): {error}") from None

    def write_stream(self, name: str, chunk: Any) -> None:
        self._writing("ctx.stream()").append(self.lease, name, self._shown(name, chunk))

    def close_stream(self, name: str) -> None:
        self._writing("ctx.stream()").close_stream(self.lease, name)

    def _shown(self, name: str, value: Any) -> bytes:
        raw = encode_value(value, f"what is published as '{name}'", LARGEST_VALUE, LARGEST_VALUE)
        return raw if self.secrets is None else encode_value(self.secrets.plain(decode_value(raw)), name)

    def _writes(self) -> TaskWrites | None:
        found = self.services.get(WRITES)
        return found if isinstance(found, TaskWrites) else None

    def _writing(self, verb: str) -> TaskWrites:
        found = self._writes()
        if found is None:
            raise UsageError(f"{verb} works only in a task or node that a worker runs")
        return found

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


class TaskStream:
    """A stream of the execution, as a task writes it."""

    def __init__(self, context: RunContext, name: str) -> None:
        self.name = name
        self._context = context

    def write(self, chunk: Any) -> None:
        self._context.write_stream(self.name, chunk)

    def close(self) -> None:
        self._context.close_stream(self.name)


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


# -- ctx.transaction(): writes of a task in the same transaction as its step ---------------------------------

TRANSACTIONS = "transactions"

Run = tuple[str, int]
"""A token and the fence of its lease."""

NOT_HERE = (
    "ctx.transaction() needs a store on SQLite or PostgreSQL, and a task that runs in a worker with that store; "
    "this one has none to share"
)
NEEDS_WORK_FUNCTION = (
    "on SQLite a transaction is a short function that runs with the step's commit: "
    "write ctx.transaction(lambda connection: connection.execute(…))"
)
GIVES_CONNECTION = (
    "on PostgreSQL a transaction is a block in an async task: make it `async def` and write "
    "`async with ctx.transaction() as connection:`"
)


class StepTransactions:
    """The transactions of the runs in progress. ``retries``: the retry policy of each run, in case its writes fail at
    commit. A token that lost its lease may run here twice; its fence distinguishes the runs.
    """

    def __init__(self, store: Transactions | None) -> None:
        self._store = store
        self._open: dict[Run, StepTransaction] = {}
        self._work: dict[Run, list[Work]] = {}
        self.retries: dict[Run, RetryPolicy | None] = {}

    def has(self, lease: Lease) -> bool:
        if not self.retries:  # the usual case: every step of every chain asks
            return False
        run = lease.token, lease.fence
        return run in self._open or run in self._work

    def add(self, lease: Lease, work: Work, retry: RetryPolicy | None) -> None:
        """Add writes, from the thread of the task."""
        if self._store is None or not self._store.takes_work:
            raise self.wrong_form()
        run = lease.token, lease.fence
        self.retries[run] = retry
        self._work.setdefault(run, []).append(work)

    def wrong_form(self) -> UsageError:
        """Return the error for a task that uses the other form of transaction than its store."""
        if self._store is None:
            return UsageError(NOT_HERE)
        return UsageError(NEEDS_WORK_FUNCTION if self._store.takes_work else GIVES_CONNECTION)

    @asynccontextmanager
    async def connection(self, lease: Lease, retry: RetryPolicy | None) -> AsyncIterator[Any]:
        """Enter a transaction. If it is left without an error, it stays open until the step's commit ends it."""
        if self._store is None or self._store.takes_work:
            raise self.wrong_form()
        run = lease.token, lease.fence
        opened = self._open.pop(run, None) or await self._opened(self._store)
        try:
            yield opened.connection
        except BaseException as error:
            lost = opened.is_lost() and isinstance(error, Exception)
            fault = await opened.own_fault() if lost else None
            await opened.rollback()
            if fault is not None:
                raise fault from error
            if lost:
                raise TransactionLost(
                    f"the connection to the store was lost during a task's transaction ({error})"
                ) from error
            raise
        self.retries[run] = retry
        self._open[run] = opened

    async def _opened(self, store: Transactions) -> StepTransaction:
        try:
            return await store.open()
        except OperatorError as error:
            raise TransactionLost(str(error)) from error

    async def of_step(self, lease: Lease) -> StepTransaction | None:
        """Return the transaction in which the step of this run must be committed."""
        run = lease.token, lease.fence
        if run in self._work and self._store is not None:
            self._open[run] = await self._store.open(self._work.pop(run))
        return self._open.get(run)

    def ended(self, lease: Lease) -> RetryPolicy | None:
        """Forget a transaction that was committed, or whose commit failed. Return the run's retry policy."""
        run = lease.token, lease.fence
        self._open.pop(run, None)
        return self.retries.pop(run, None)

    async def abandon(self, lease: Lease) -> None:
        """Roll back the transaction of a run that failed, or whose step cannot be applied."""
        run = lease.token, lease.fence
        self._work.pop(run, None)
        self.retries.pop(run, None)
        opened = self._open.pop(run, None)
        if opened is not None:
            await opened.rollback()


NO_TRANSACTIONS = StepTransactions(None)
"""The transactions of an engine that runs nothing."""


class Block(AbstractAsyncContextManager[Any]):
    """The context manager of ``async with ctx.transaction()``. A plain ``with`` raises an error with the right
    form.
    """

    def __init__(self, transactions: StepTransactions, lease: Lease, retry: RetryPolicy | None) -> None:
        self._transactions = transactions
        self._inside = transactions.connection(lease, retry)

    async def __aenter__(self) -> Any:
        return await self._inside.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._inside.__aexit__(kind, error, traceback)

    def __enter__(self) -> NoReturn:
        raise self._transactions.wrong_form()

    def __exit__(self, *_: object) -> None:
        """Never reached, but Python requires it before it calls ``__enter__``."""
