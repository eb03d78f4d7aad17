"""A simulated process: the real engine with all its roles, and a heartbeat without a thread.

It adds one node type, whose result, failures and duration are written in the document.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import cache, lru_cache
from typing import Any
from zlib import crc32

import msgspec
from pydantic import BaseModel, ConfigDict

from dalsegno.adapters.memory import MemoryArchive, MemoryBlobs, MemoryPublished, MemoryRecords
from dalsegno.engine.definitions import Definitions
from dalsegno.engine.engine import Engine
from dalsegno.engine.scripts.python_workflows import Workflows
from dalsegno.engine.settings import EngineSettings
from dalsegno.engine.worker.heartbeat import Heartbeat
from dalsegno.errors import OperatorError
from dalsegno.graph.build import Compiled, load_graph
from dalsegno.graph.plan import Plan
from dalsegno.model.definition import Definition
from dalsegno.nodes.builder import node_type
from dalsegno.nodes.builtin import BUILTIN_TYPES
from dalsegno.nodes.registry import NodeRegistry
from dalsegno.ports.broker import Broker
from dalsegno.ports.ledger import Ledger
from dalsegno.ports.node import NodeContext, NodeError
from dalsegno.ports.stack import Stack
from dalsegno.testing.simulation.environment.faults import ProcessLedger
from dalsegno.testing.simulation.environment.loop import OWNER, ProcessRun

ALWAYS = 1000


class WorkParameters(BaseModel):
    """Parameters of a simulated unit of work.

    * ``kills``: number of first runs that take their process down.
    * ``fails``: number of first attempts that fail.
    * ``when``: fail only if this is true.
    * ``seconds``: virtual duration.
    * ``note``: any value; part of the output's digest.
    * ``pad``: characters that make the output larger.
    """

    model_config = ConfigDict(extra="forbid")

    kills: int = 0
    fails: int = 0
    when: Any = True
    seconds: float = 0.0
    note: Any = None
    pad: int = 0


def digest(node: str, payload: Any, note: Any) -> int:
    """Return a small number that depends on every input of the run."""
    text = msgspec.json.encode([node, payload, note], order="sorted")
    return crc32(text) % 9973


def work_output(node: str, payload: Any, note: Any, pad: int) -> dict[str, Any]:
    output: dict[str, Any] = {"n": node, "v": digest(node, payload, note)}
    if pad:
        output["pad"] = "x" * pad
    return output


@node_type("work", parameters=WorkParameters, needs=("$payload",))
async def work(ctx: NodeContext, parameters: WorkParameters) -> Any:
    """A deterministic function of its input, after a delay, or a failure."""
    if parameters.kills:
        await _die(ctx, parameters.kills)
    if parameters.seconds:
        await asyncio.sleep(parameters.seconds)
    if ctx.attempt <= parameters.fails and parameters.when:
        raise NodeError(f"programmed failure of {ctx.node_id}", code="PROGRAMMED")
    return work_output(ctx.node_id, ctx.payload, parameters.note, parameters.pad)


async def _die(ctx: NodeContext, times: int) -> None:
    """Crash the process, until the node has done so ``times`` times."""
    deaths = ctx.services["deaths"]
    if deaths[ctx.idempotency_key] < times:
        deaths[ctx.idempotency_key] += 1
        ctx.services["process_run"].die()
        await asyncio.sleep(0)


@cache
def simulation_registry() -> NodeRegistry:
    return NodeRegistry((*BUILTIN_TYPES, work))


LEASE_SECONDS = 20.0
RECONCILE_EVERY = 5.0
UNTOUCHED_AFTER = 30.0
NO_SERVICES: Mapping[str, Any] = {}


class SimulatedHeartbeat(Heartbeat):
    """Beats from a task of its process, and stops with it."""

    def __init__(
        self,
        ledger: Ledger,
        names: Callable[[], Iterable[str]],
        lease_seconds: float,
        info: bytes | Callable[[], bytes] = b"",
    ) -> None:
        self.ledger = ledger
        self.lease_seconds = lease_seconds
        self._names = names
        self._info = info

    def start(self) -> None:
        self.beat()
        self._task = asyncio.get_running_loop().create_task(self._beat())

    def soon(self) -> None:
        self.beat()

    def stop(self) -> None:
        self._task.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.lease_seconds / 4)
            self.beat()


@lru_cache(512)
def _compiled(document: bytes, name: str | None, stored: bool) -> Compiled:
    return load_graph(document, simulation_registry(), default_name=name, stored=stored)


def compiled(
    document: str | bytes | Mapping[str, Any], name: str | None = None, *, stored: bool = False
) -> Compiled:
    """Compile a graph once for all simulated processes: most of them run the same one as the process before."""
    if isinstance(document, Mapping):
        document = msgspec.json.encode(document)
    return _compiled(document.encode() if isinstance(document, str) else document, name, stored)


class SimulatedDefinitions(Definitions):
    def load(self, document: str | bytes | Mapping[str, Any], name: str | None = None) -> Compiled:
        return compiled(document, name)

    def _plan(self, definition: Definition) -> Plan:
        return compiled(definition.source, stored=True).plan


class SimulatedEngine(Engine):
    make_definitions = SimulatedDefinitions
    make_heartbeat = SimulatedHeartbeat


class Process:
    """``kill`` stops it at once: none of its code runs any more, not even clean-up."""

    def __init__(
        self,
        name: str,
        ledger: ProcessLedger,
        broker: Broker,
        concurrency: int,
        deaths: Counter[str],
        services: Mapping[str, Any] = NO_SERVICES,
        workflows: Workflows | None = None,
    ) -> None:
        self.process_run = ProcessRun(name)
        truth = ledger.truth
        stack = Stack(
            url="simulation:",
            ledger=ledger.as_ledger(),
            broker=broker,
            archive=MemoryArchive(truth.store, truth.clock),
            blobs=MemoryBlobs(truth.store),
            records=MemoryRecords(truth.store, truth.clock),
            published=MemoryPublished(truth.store, truth.clock),
            clock=truth.clock,
            close=ledger.close,
        )
        settings = EngineSettings(
            concurrency=concurrency,
            lease_seconds=LEASE_SECONDS,
            reconcile_every=RECONCILE_EVERY,
            untouched_after=UNTOUCHED_AFTER,
            worker_name=name,
            missing_tasks="fail",  # every process has all tasks
        )
        own = {"process_run": self.process_run, "deaths": deaths, **services}
        self.engine = SimulatedEngine(stack, simulation_registry(), own, settings, workflows)

    def start(self) -> None:
        self.spawn(self._boot())

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Create a task of this process. All tasks that it creates belong to the process, too."""
        context = contextvars.copy_context()
        context.run(OWNER.set, self.process_run)
        return asyncio.get_running_loop().create_task(work, context=context)

    def kill(self) -> None:
        self.process_run.dead = True

    async def stop(self) -> None:
        """End gracefully, if the store permits it."""
        with contextlib.suppress(OperatorError):
            await self.engine.stop()
        self.kill()

    async def _boot(self) -> None:
        while True:
            try:
                return await self.engine.start()
            except OperatorError:
                await asyncio.sleep(1.0)
