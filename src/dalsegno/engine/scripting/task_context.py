"""What a task or a library node sees when a script runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from dalsegno.core.script_bodies import decode_task
from dalsegno.engine.run_context import LogSink
from dalsegno.engine.secrets.run_secrets import UsesCredentials, vault_in
from dalsegno.engine.transactions import UsesTransactions
from dalsegno.errors import InvalidInput
from dalsegno.model.retry import RetryPolicy
from dalsegno.model.token import Lease


class TaskRunContext(UsesCredentials, UsesTransactions):
    """Implements ports.node.NodeContext for one attempt of a script's task."""

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
        """The number of its promise, which tells it from others of its name."""
        promise = decode_task(self.lease.data).promise
        return () if promise is None else (promise,)

    def lookup(self, root: str) -> Any:
        """A script gives its nodes finished values; the only root is what it gave."""
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
        """This worker may never have loaded the script whose task it runs."""
        definition = self.lease.definition
        named = await vault_in(self.services).workflow_of(definition)
        return named or self.workflow, definition

    def heartbeat(self) -> None:
        self.beats += 1

    def use_retry(self, policy: RetryPolicy) -> None:
        """How the task was registered; options of the call win."""
        self.retry = policy
