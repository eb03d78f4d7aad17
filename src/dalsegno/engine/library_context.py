"""What a node of the library sees when a script runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from dalsegno.engine.budget import evaluated_each
from dalsegno.engine.scripting.task_context import TaskRunContext
from dalsegno.engine.transactions import UsesTransactions
from dalsegno.lang import Expression
from dalsegno.lang.limits import Meter
from dalsegno.model.retry import RetryPolicy
from dalsegno.model.token import Lease
from dalsegno.ports.secrets import Credential


class LibraryNodeContext(UsesTransactions):
    """Implements ports.node.NodeContext around the context of the task that runs the node."""

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
        """The only root there is: a script has no nodes before this one."""
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
