"""The process that computes heavy steps: ``python -m dalsegno.step_process MEMORY SECONDS``.

It runs `Steps` and `ScriptSteps` as a worker does. Their calls to the store are sent to the parent, one at a time,
on the standard output; replies and requests arrive on the standard input. Messages are length-prefixed MessagePack;
`dalsegno.engine.subprocesses.heavy_steps` defines them. The process ends when its input is closed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any, BinaryIO, cast

import msgspec

from dalsegno.core.values import encode_value
from dalsegno.engine.definitions import Definitions
from dalsegno.engine.scripts.readiness import Readiness
from dalsegno.engine.scripts.steps import ScriptSteps
from dalsegno.engine.scripts.task_inputs import TaskInputs
from dalsegno.engine.scripts.tasks import TaskRunner
from dalsegno.engine.scripts.turns import Turns, turn_limits
from dalsegno.engine.steps.graph import Steps
from dalsegno.engine.steps.run_node import OnlyRendered, PassesThrough, Runner
from dalsegno.engine.steps.values import Loader, Storage
from dalsegno.engine.subprocesses.examination import TypeSpec, node_spec, value_of
from dalsegno.engine.subprocesses.heavy_steps import (
    Ask,
    Broken,
    Computed,
    LogLine,
    Message,
    NotHere,
    Rendered,
    Request,
    Setting,
    is_script,
)
from dalsegno.engine.subprocesses.job_pool import LENGTH
from dalsegno.job_process import confine
from dalsegno.model.barrier import LeftView, SlotView
from dalsegno.model.definition import Definition
from dalsegno.model.event import Event
from dalsegno.model.execution import ExecutionView
from dalsegno.model.inspection import Inspection
from dalsegno.model.machine import MachineView
from dalsegno.model.published import Usage
from dalsegno.nodes.builtin import BUILTIN_TYPES
from dalsegno.nodes.registry import NodeRegistry
from dalsegno.ports.node import NodeContext, NodeType

PROGRAMS = 16
"""Definitions that stay loaded."""
KEPT = 16 * 1024 * 1024
"""Bytes of cached blobs."""
ANSWERS: dict[str, Any] = {
    "outputs": dict[str, bytes],
    "slots": list[SlotView],
    "left": list[LeftView],
    "gate_used": tuple[int, ...],
    "machine": MachineView | None,
    "inspect": Inspection | None,
    "execution": ExecutionView | None,
    "events": list[Event],
    "definition_by_hash": Definition | None,
    "get": bytes,
    "put": str,
    "put_of_turn": str,
    "prune": None,
    "charge": None,
    "usage": Usage,
    "task_options": dict[str, Any],
}


class ApplicationCode(PassesThrough):
    """The step needs code of the application, which only the parent has."""


class Parent:
    """The parent process, at the other end of the pipe."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source = source
        self._sink = sink

    def read(self) -> bytes | None:
        head = self._source.read(LENGTH.size)
        return self._source.read(LENGTH.unpack(head)[0]) if len(head) == LENGTH.size else None

    def write(self, message: Message) -> None:
        body = msgspec.msgpack.encode(message)
        self._sink.write(LENGTH.pack(len(body)))
        self._sink.write(body)
        self._sink.flush()

    def ask(self, method: str, *arguments: Any) -> Any:
        self.write(Ask(method, msgspec.Raw(msgspec.msgpack.encode(arguments))))
        body = self.read()
        if body is None:
            raise SystemExit(0)
        reply = msgspec.msgpack.decode(body, type=dict[str, msgspec.Raw])
        if "raised" in reply:
            return value_of({"raised": msgspec.msgpack.decode(reply["raised"])})
        return msgspec.msgpack.decode(reply["value"], type=ANSWERS[method])

    def log(self, execution: str, node: str, level: str, message: str) -> None:
        self.write(LogLine(execution, node, level, message))


class Clock:
    """The store's clock as of the request."""

    def __init__(self) -> None:
        self._now = self._since = 0.0

    def set(self, now: float) -> None:
        self._now, self._since = now, time.monotonic()

    def now(self) -> float:
        return self._now + time.monotonic() - self._since


class Port:
    """Ledger, archive and blobs in one object: every call is forwarded to the parent."""

    def __init__(self, parent: Parent, clock: Clock) -> None:
        self._parent = parent
        self._clock = clock

    def now(self) -> float:
        return self._clock.now()

    def __getattr__(self, method: str) -> Any:
        if method not in ANSWERS:
            raise AttributeError(method)

        async def ask(*arguments: Any) -> Any:
            return self._parent.ask(method, *arguments)

        return ask


class RemoteStorage(Storage):
    """Storage without limits of its own: the parent counts and refuses."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent
        self._known: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._size = 0

    async def put(
        self, execution: str, data: bytes, *, turn: int | None = None, limit: int | None = None
    ) -> str:
        if turn is None:
            return str(self._parent.ask("put", execution, data))
        return str(self._parent.ask("put_of_turn", execution, data, turn))

    async def get(self, execution: str, blob: str) -> bytes:
        """Return a blob from a cache: the items of a split often read the same one."""
        known = self._known.get((execution, blob))
        if known is None:
            known = bytes(self._parent.ask("get", execution, blob))
            self._known[execution, blob] = known
            self._size += len(known)
            while self._size > KEPT and self._known:
                self._size -= len(self._known.popitem(last=False)[1])
        return known

    async def prune(self, execution: str, turn: int, keep: Collection[str]) -> None:
        self._parent.ask("prune", execution, turn, list(keep))

    async def charge(self, execution: str, size: int, *, limit: int | None = None) -> None:
        self._parent.ask("charge", execution, size)


class Computer:
    """Computes steps, one after the other."""

    def __init__(self, parent: Parent, setting: Setting) -> None:
        self._parent = parent
        self._clock = Clock()
        self._loop = asyncio.Runner()
        limits, port, storage = setting.limits, cast(Any, Port(parent, self._clock)), RemoteStorage(parent)
        types = registry(setting.types)
        definitions = Definitions(port, types, self._clock, limits, PROGRAMS)
        loader = Loader(port, storage)
        runner = Runner(types, loader, {}, parent.log, limits)
        runner.only_renders = True
        self._steps = Steps(port, storage, definitions, loader, runner, setting.items_per_commit, limits)
        script_log: Callable[[str, str, str], None] = lambda execution, level, text: parent.log(  # noqa: E731
            execution, "workflow", level, text
        )
        self._scripts = ScriptSteps(
            port,
            port,
            storage,
            definitions,
            TaskRunner(types, {}, parent.log, limits, TaskInputs(port, storage)),
            Turns(storage, turn_limits(limits), script_log, self._task_options, port, port.usage),
            limits,
            None,
            Readiness(definitions, cast(Any, None), cast(Any, None)),  # Python workflows run in the parent
            setting.cancel_grace,
        )

    def _task_options(self, name: str) -> Mapping[str, Any]:
        return cast(Mapping[str, Any], self._parent.ask("task_options", name))

    def answer(self, request: Request) -> Message:
        self._clock.set(request.now)
        try:
            return self._loop.run(self._step(request))
        except ApplicationCode:
            return NotHere()
        except MemoryError:
            return Broken("the step needs more memory than its process may have", is_limit=True)
        except Exception as error:  # noqa: BLE001 - it is reported to the parent
            return Broken(f"{type(error).__name__}: {error}")

    async def _step(self, request: Request) -> Message:
        if not is_script(request.lease):
            try:
                return Computed((await self._steps.step(request.lease)).transition)
            except OnlyRendered as found:
                return Rendered(encode_value(found.parameters, "the parameters"))
        step = await self._scripts.step(request.lease)
        return Computed(step.transition, step.freed, step.spent)


def registry(types: list[TypeSpec]) -> NodeRegistry:
    """Return the built-in types, and those of the application by name: their code runs in the parent."""
    found = NodeRegistry(BUILTIN_TYPES)
    for each in types:
        if found.find(each.type) is None:
            found.register(_absent(each))
    return found


def _absent(given: TypeSpec) -> NodeType:
    receive = _elsewhere if given.receives else None
    return NodeType(node_spec(given), dict, _execute_elsewhere, needs=given.needs, receive=receive)


async def _execute_elsewhere(_ctx: NodeContext, _parameters: Any) -> Any:
    raise ApplicationCode


def _elsewhere(_raw: Mapping[str, Any], _payload: Any) -> Any:
    raise ApplicationCode


def main(memory: int, seconds: int) -> None:
    """Run the process. ``seconds``: limit of the CPU time of one step; it applies if the parent, which has a limit of
    its own, has died.
    """
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep printed text out of the protocol
    confine(memory)
    sink.write(b"!")
    sink.flush()
    parent = Parent(source, sink)
    first = parent.read()
    if first is None:
        return
    computer = Computer(parent, msgspec.msgpack.decode(first, type=Setting))
    requests = msgspec.msgpack.Decoder(Request)
    while (body := parent.read()) is not None:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_PROF, seconds)
        parent.write(computer.answer(requests.decode(body)))
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
