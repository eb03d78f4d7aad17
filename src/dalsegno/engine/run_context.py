"""What a running node sees of the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dalsegno.core.situation import Situation
from dalsegno.engine.budget import Meters, evaluated_each
from dalsegno.engine.definitions import Program
from dalsegno.engine.loader import Lookup
from dalsegno.engine.secrets.run_secrets import UsesCredentials
from dalsegno.engine.transactions import UsesTransactions
from dalsegno.lang.limits import Meter
from dalsegno.model.retry import RetryPolicy
from dalsegno.model.token import Lease

LogSink = Callable[[str, str, str, str], None]
"""execution, node, level, message"""


class RunContext(UsesCredentials, UsesTransactions):
    """Implements ports.node.NodeContext for one attempt."""

    __slots__ = (
        "_is_pure",
        "_log",
        "_meter",
        "_meters",
        "_payload",
        "_situation",
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
        situation: Situation,
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
        self._situation = situation
        self._log = log
        self._meters = meters
        self._is_pure = is_pure
        self._meter: Meter | None = None

    @property
    def execution_id(self) -> str:
        return self._situation.lease.execution

    @property
    def workflow(self) -> str:
        return self.program.definition.name

    @property
    def version(self) -> int:
        return self.program.definition.version

    @property
    def node_id(self) -> str:
        return self._situation.lease.node

    @property
    def node_name(self) -> str:
        return self._situation.node.name

    @property
    def own_lease(self) -> Lease:
        return self._situation.lease

    @property
    def own_retry(self) -> RetryPolicy | None:
        return self._situation.retry

    @property
    def idempotency_key(self) -> str:
        return self._situation.lease.token

    @property
    def attempt(self) -> int:
        return self._situation.lease.attempt

    @property
    def now(self) -> float:
        return self._situation.now

    @property
    def indexes(self) -> tuple[int, ...]:
        return tuple(loop.index for loop in self._situation.body.loops)

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
        """Local names win over roots: inside a list node ``$item`` is the list's item, not the split's."""
        meter = self.meter
        meter.renew()
        expression = self._situation.node.parameters.expressions[parameter]
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
        """What all expressions of this run share. A run with effects cannot be given up when those are evaluated."""
        if self._meter is None:
            self._meter = self._meters.new(may_be_light=self._is_pure)
        return self._meter

    def has_expression(self, parameter: str) -> bool:
        return parameter in self._situation.node.parameters.expressions

    def log(self, message: str, level: str = "info") -> None:
        self._log(self.execution_id, self.node_id, level, self.redact(message))

    @property
    def credential_name(self) -> str | None:
        return self._situation.node.credential

    async def _asking(self) -> tuple[str, str]:
        return self.workflow, self.program.definition.hash

    def heartbeat(self) -> None:
        """Plain attribute writes are safe from any thread: sync tasks beat from theirs."""
        self.beats += 1

    def use_retry(self, policy: RetryPolicy) -> None:
        """How failures of this run are retried, unless the document says so itself."""
        self._situation.retry = policy
