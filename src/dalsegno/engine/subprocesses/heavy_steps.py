"""Steps that are too heavy for the event loop: each is computed in a subprocess, while this process talks to the
store.

The subprocess runs the same code (`Steps`, `ScriptSteps`) on ports that call this process over a pipe; see
`dalsegno.step_process`. It has a memory limit, no connection to the store and none of this process's secrets. Large
values pass through here as bytes and are never decoded.

* Workflows take turns. A workflow with many heavy steps waits for its own; steps beyond the queue's length are put
  off.
* A subprocess answers with a transition, which is committed here like any other.
* Nodes with effects run here: the subprocess only renders their parameters.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from dalsegno.core.graph.complete import Step
from dalsegno.core.graph.step_input import Body
from dalsegno.core.values import decode_value
from dalsegno.engine.scripts.script_step import ScriptStep
from dalsegno.engine.scripts.steps import ScriptSteps
from dalsegno.engine.settings import EngineLimits
from dalsegno.engine.steps.budget import is_light
from dalsegno.engine.steps.graph import Steps
from dalsegno.engine.steps.run_node import PassesThrough
from dalsegno.engine.subprocesses.examination import TypeSpec, type_spec
from dalsegno.engine.subprocesses.job_pool import ChildProcess, Lane, OffloadLimits
from dalsegno.errors import InternalError, LimitExceeded, NotFound, Overloaded
from dalsegno.model.execution import SCRIPTED
from dalsegno.model.published import Usage
from dalsegno.model.token import Lease
from dalsegno.model.transition import Transition
from dalsegno.ports.archive import Archive
from dalsegno.ports.ledger import Ledger

S = TypeVar("S")

logger = logging.getLogger("dalsegno.worker")

MODULE: Final = "dalsegno.step_process"
SCRIPT_TOKENS = frozenset(("resume", "task", "timer", "schedule", "start"))
REMEMBERED = 10_000
"""Nodes and scripts that are remembered as heavy."""
TIMES = 20
"""Heavy steps of a node or script after which the next one is tried as a light step again."""
STARTS_IN = 60.0
"""Seconds within which a process must be ready."""
SHORTEST_DELAY, LONGEST_DELAY = 0.1, 5.0
"""Bounds, in seconds, on the time for which a step is postponed; within them it is the expected time of the queued
steps.
"""
PATIENCE = 10
"""Time of a step by the clock, without waits for a processor, as a multiple of its limit of CPU time."""
SHORTEST_LOOK = 0.05
RECENT = 0.1
"""Weight of the latest step in the moving average of the time per step."""

AT_ONCE = 64 * 1024 * 1024
"""Bytes of messages over 1 MiB from processes that are held at a time: results until they are committed. A larger
message is held alone.
"""

Report = Callable[[str, str, str, str], None]
"""Arguments: execution, node, level, message."""


@dataclass(frozen=True, slots=True)
class HeavyLimits:
    processes: int
    memory: int
    seconds: float
    in_line: int
    """Queued steps of all workflows."""


class PutOff(PassesThrough):
    """Too many heavy steps are queued: this one returns after ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


class Setting(Struct, frozen=True):
    """The settings that a process receives when it starts."""

    limits: EngineLimits
    items_per_commit: int
    types: list[TypeSpec]
    cancel_grace: float | None = None


class Request(Struct, frozen=True):
    lease: Lease
    now: float


class Ask(Struct, frozen=True, tag=True):
    """A call of a port, or of the application, by the process."""

    method: str
    arguments: msgspec.Raw


class LogLine(Struct, frozen=True, tag=True):
    """A line for the execution's log."""

    execution: str
    node: str
    level: str
    message: str


class Computed(Struct, frozen=True, tag=True):
    transition: Transition
    freed: int = 0
    spent: str | None = None


class Rendered(Struct, frozen=True, tag=True):
    """The parameters of a node with effects, as JSON."""

    parameters: bytes


class NotHere(Struct, frozen=True, tag=True):
    """The step needs code of the application."""


class Broken(Struct, frozen=True, tag=True):
    message: str
    is_limit: bool = False


class Died(Broken, frozen=True, tag=False):
    """The process ended without an answer."""


Message = Ask | LogLine | Computed | Rendered | NotHere | Broken

_messages: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_arguments = msgspec.msgpack.Decoder(list[Any])


class HeavySteps:
    def __init__(
        self,
        steps: Steps,
        scripts: ScriptSteps,
        ledger: Ledger,
        archive: Archive,
        usage: Callable[[str], Awaitable[Usage]],
        task_options: Callable[[str], Mapping[str, Any]],
        limits: HeavyLimits,
        report: Report,
    ) -> None:
        self._steps = steps
        self._scripts = scripts
        self._ledger = ledger
        self._report = report
        self._limits = limits
        self.are_possible = limits.processes > 0
        self.named: Callable[[str, str], None] = lambda definition, name: None
        """Receives definition hash and name of each workflow with heavy steps."""
        child = OffloadLimits(
            limits.processes,
            limits.seconds,
            wait_seconds=3600.0,
            queue=max(limits.in_line // 2, 1),
            memory_bytes=limits.memory,
        )
        self._child = child
        self._lane = Lane(limits.processes, child)
        self._bytes = Lane(AT_ONCE, OffloadLimits(wait_seconds=None, queue=sys.maxsize), AT_ONCE)
        self.held: dict[str, int] = {}
        """Bytes of large messages, by the token of their step."""
        self._takes = SHORTEST_DELAY
        """Average seconds per step."""
        self._idle: list[ChildProcess] = []
        self._ends: set[asyncio.Task[None]] = set()
        """Waits for the end of killed processes."""
        self.known_heavy: OrderedDict[tuple[str, str], int] = OrderedDict()
        """Number of further steps of a node, or of a script, that are not tried as light steps first."""
        storage = steps.storage
        self._ports: dict[str, Callable[..., Awaitable[Any]]] = {
            "outputs": ledger.outputs,
            "slots": ledger.slots,
            "left": ledger.left,
            "gate_used": ledger.gate_used,
            "machine": ledger.machine,
            "inspect": ledger.inspect,
            "execution": archive.execution,
            "events": archive.events,
            "definition_by_hash": archive.definition_by_hash,
            "get": storage.get,
            "put": storage.put,
            "put_of_turn": lambda execution, data, turn: storage.put(execution, data, turn=turn),
            "prune": storage.prune,
            "charge": storage.charge,
            "usage": usage,
        }
        self._task_options = task_options

    def expected(self, lease: Lease) -> bool:
        """Return True if the step is known to be heavy: then it is not tried as a light step first."""
        known = self.known_heavy
        if not known or not self.are_possible or (key := _place(lease)) not in known:
            return False
        known[key] -= 1
        if known[key] > 0:
            return True
        del known[key]
        return False

    def full(self) -> list[str]:
        """Return the workflows whose queue of heavy steps is full: further ones would only be postponed."""
        if not self._lane.waiting:
            return []
        is_full = self._lane.waiting >= self._limits.in_line
        return self._lane.with_waiting(1 if is_full else self._child.queue)

    def waiting(self) -> list[str]:
        """Return the workflows with queued heavy steps."""
        return self._lane.with_waiting(1)

    def claimable(self, steps: int) -> int:
        """Return how many of this many steps may be claimed: while heavy steps are queued, the next ones may be
        heavy, too.
        """
        waiting = self._lane.waiting
        return min(steps, max(self._limits.in_line - waiting, 1)) if waiting else steps

    async def step(self, lease: Lease, body: Body | None) -> Step:
        """Compute a step of a graph. Raises PutOff."""
        match await self._answered(lease):
            case Computed(transition):
                return Step(transition, {})
            case Rendered(parameters):
                rendered = self._steps.runner.rendered
                rendered[lease.token] = decode_value(parameters)
                try:
                    return await self._here(self._steps.step, lease, body)
                finally:
                    rendered.pop(lease.token, None)
            case Broken(message, is_limit=True):
                return await self._here(self._steps.too_heavy, lease, body, message)
            case _:
                return await self._here(self._steps.step, lease, body)

    async def script_step(self, lease: Lease) -> ScriptStep:
        """Compute a step of a script. Raises PutOff."""
        match await self._answered(lease):
            case Computed(transition, freed, spent):
                return ScriptStep(transition, freed=freed, spent=spent)
            case Broken(message, is_limit=True):
                return await self._here(self._scripts.too_heavy, lease, message)
            case _:
                return await self._here(self._scripts.step, lease)

    async def _answered(self, lease: Lease) -> Message:
        self._remember(lease)
        workflow = await self._workflow(lease)
        if self._lane.waiting >= self._limits.in_line and workflow in self._lane.with_waiting(1):
            raise self._later()
        try:
            async with self._lane.place(workflow):
                answer = await self._compute(lease)
                if isinstance(answer, Died):
                    self._end_idle()  # the cause may not have been this step
                    answer = await self._compute(lease)
        except Overloaded:
            raise self._later() from None
        if isinstance(answer, Broken) and not answer.is_limit:
            raise InternalError(f"the process of a heavy step broke: {answer.message}")
        return answer

    def _later(self) -> PutOff:
        expected = self._takes * (self._lane.waiting + 1) / self._limits.processes
        return PutOff(min(max(expected, SHORTEST_DELAY), LONGEST_DELAY))

    def _remember(self, lease: Lease) -> None:
        self.known_heavy.setdefault(_place(lease), TIMES)
        if len(self.known_heavy) > REMEMBERED:
            self.known_heavy.popitem(last=False)

    async def _workflow(self, lease: Lease) -> str:
        if not lease.definition:
            return lease.node
        name = await self._steps.definitions.name_of(lease.definition)
        self.named(lease.definition, name)
        return name

    async def _here(self, step: Callable[..., Awaitable[S]], *arguments: Any) -> S:
        """Run a step with the full limits in this process."""
        before = is_light.set(False)
        try:
            return await step(*arguments)
        finally:
            is_light.reset(before)

    # -- the process ------------------------------------------------------------------------------------------

    async def _compute(self, lease: Lease) -> Message:
        process = await self._take()
        if process is None:
            return NotHere()
        is_kept, began = False, monotonic()
        try:
            answer = await self._in_time(process, lease)
            self._takes += RECENT * (monotonic() - began - self._takes)
            self._keep(process)
            is_kept = True
            return answer
        except TimeoutError:
            return Broken(
                f"the step takes more than {self._limits.seconds:g} s (setting 'heavy_seconds'); compute less in it, or"
                " in a task",
                is_limit=True,
            )
        except (asyncio.IncompleteReadError, ConnectionError):
            return Died(
                f"the step ended the process that computes it: it may need more than {self._limits.memory:,} bytes of"
                " memory (setting 'heavy_memory'); work on less data at a time",
                is_limit=True,
            )
        finally:
            if not is_kept:
                self._end(process)

    async def _in_time(self, process: ChildProcess, lease: Lease) -> Message:
        """Compute a step within its CPU time, which does not depend on a loaded machine or a slow store. Raises
        TimeoutError. The time for which it waits for a processor does not count at all: it goes last.
        """
        seconds, until = self._limits.seconds, monotonic() + PATIENCE * self._limits.seconds
        before, waited = process.processor_seconds(), process.waiting_seconds()
        conversation = asyncio.ensure_future(self._converse(process, lease))
        left = seconds
        try:
            while not (await asyncio.wait({conversation}, timeout=left))[0]:
                now = process.processor_seconds()
                left = seconds - (now - before) if now is not None and before is not None else 0.0
                if left <= 0 or monotonic() - (process.waiting_seconds() - waited) >= until:
                    raise TimeoutError
                left = max(left, SHORTEST_LOOK)
            return await conversation
        finally:
            conversation.cancel()

    async def _converse(self, process: ChildProcess, lease: Lease) -> Message:
        await process.send(msgspec.msgpack.encode(Request(lease, self._ledger.now())))
        while True:
            self.release_bytes(lease)
            answer = await self._answer_request(process, lease)
            if answer is not None:
                return answer

    async def _answer_request(self, process: ChildProcess, lease: Lease) -> Message | None:
        """Return the next message if it is the last one. The bytes held for the previous message are released."""
        message = _messages.decode(await process.receive(partial(self._hold, lease)))
        match message:
            case Ask(method, arguments):
                await process.send(await self._answer(method, _arguments.decode(arguments)))
            case LogLine(execution, node, level, text):
                self._report(execution, node, level, text)
            case _:
                return message
        return None

    async def _hold(self, lease: Lease, size: int) -> None:
        """Wait for room for a large message: the result of a step is held until it is committed."""
        weight = min(size, AT_ONCE)
        await self._bytes.enter("", weight)
        self.held[lease.token] = weight

    def release_bytes(self, lease: Lease) -> None:
        """Release the bytes held for a step."""
        if self.held and (weight := self.held.pop(lease.token, 0)):
            self._bytes.leave("", weight)

    async def _answer(self, method: str, arguments: list[Any]) -> bytes:
        try:
            if method == "task_options":
                value: Any = self._task_options(*arguments)
            else:
                value = await self._ports[method](*arguments)
        except (LimitExceeded, NotFound) as error:
            return msgspec.msgpack.encode({"raised": {"class": type(error).__name__, "message": str(error)}})
        return msgspec.msgpack.encode({"value": value})

    async def _take(self) -> ChildProcess | None:
        """Return a process; None if none can be started."""
        while self._idle:
            process = self._idle.pop()
            if process.ends is not None:
                process.ends.cancel()
            if process.is_alive:
                return process
            self._end(process)
        try:
            process = await ChildProcess.start(self._child, MODULE)
        except (NotImplementedError, FileNotFoundError, PermissionError) as error:
            logger.warning(
                "no process for heavy steps can be started (%s): they run in the event loop", error
            )
            self.are_possible = False
            return None
        except OSError as error:
            logger.warning(
                "no process for heavy steps can be started now (%s): the steps are postponed", error
            )
            raise PutOff(LONGEST_DELAY) from None
        try:
            async with asyncio.timeout(STARTS_IN):
                await process.ready()
                await process.send(msgspec.msgpack.encode(self._setting()))
        except (asyncio.IncompleteReadError, TimeoutError) as error:
            self._end(process)
            raise InternalError("a process for heavy steps ended before it was ready") from error
        except BaseException:
            self._end(process)
            raise
        return process

    def _keep(self, process: ChildProcess) -> None:
        process.ends = asyncio.get_running_loop().call_later(self._child.idle_seconds, self._retire, process)
        self._idle.append(process)

    def _retire(self, process: ChildProcess) -> None:
        if process in self._idle:
            self._idle.remove(process)
            self._end(process)

    def _setting(self) -> Setting:
        types = self._steps.runner.types
        found = []
        for name in types.types():
            node_type = types.get(name)
            if not node_type.pure:
                receives = node_type.receive is not None
                found.append(type_spec(node_type.spec, node_type.needs, receives=receives))
        return Setting(self._steps.limits, self._steps.items_per_commit, found, self._scripts.cancel_grace)

    def _end(self, process: ChildProcess) -> None:
        process.kill()
        end = asyncio.get_running_loop().create_task(process.wait_ended())
        self._ends.add(end)
        end.add_done_callback(self._ends.discard)

    def _end_idle(self) -> None:
        idle, self._idle = self._idle, []
        for process in idle:
            self._end(process)

    async def close(self) -> None:
        self._end_idle()
        if self._ends:
            await asyncio.wait(self._ends, timeout=5)


def is_script(lease: Lease) -> bool:
    return lease.kind in SCRIPT_TOKENS or lease.execution_kind in SCRIPTED


def _place(lease: Lease) -> tuple[str, str]:
    return lease.definition, lease.node
