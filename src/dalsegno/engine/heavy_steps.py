"""Steps that are too heavy for the event loop: each is computed in a process, while this one talks to the store.

The process runs the same code (`Steps`, `ScriptSteps`) on ports that ask this process over a pipe; see
`dalsegno.step_process`. It has a memory limit, no connection to the store and none of this process's secrets. Large
values pass through here as bytes and are never decoded.

* Workflows take turns. One that has many heavy steps waits for its own; what does not fit in line is put off.
* What a process answers is a transition, which is committed here like any other.
* Nodes with effects run here: the process only renders their parameters.
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

from dalsegno.core.body import Body
from dalsegno.core.complete import Step
from dalsegno.core.values import decode_value
from dalsegno.engine.budget import is_light
from dalsegno.engine.offload import ChildProcess, Lane, OffloadLimits
from dalsegno.engine.raised import PassesThrough
from dalsegno.engine.scripting.steps import ScriptStep, ScriptSteps
from dalsegno.engine.settings import EngineLimits
from dalsegno.engine.steps import Steps
from dalsegno.errors import InternalError, LimitExceeded, NotFound, Overloaded
from dalsegno.graph.catalog import ControlKind, NodeSpec, ParameterKind
from dalsegno.model.execution import SCRIPTED
from dalsegno.model.token import Lease
from dalsegno.model.transition import Transition
from dalsegno.ports.archive import Archive
from dalsegno.ports.ledger import Ledger

S = TypeVar("S")

logger = logging.getLogger("dalsegno.worker")

MODULE: Final = "dalsegno.step_process"
SCRIPT_TOKENS = frozenset(("resume", "task", "timer", "schedule", "start"))
REMEMBERED = 10_000
"""Nodes and scripts of which is remembered that they were heavy."""
TIMES = 20
"""Heavy steps of one node or script after which it is tried again whether the next one is light."""
STARTS_IN = 60.0
"""Seconds in which a process must be ready."""
SOONEST, LATEST = 0.1, 5.0
"""Seconds for which a step is put off: as long as those in line are expected to take."""
PATIENCE = 10
"""A step may take so many times its limit of processor time, by the clock."""
SHORTEST_LOOK = 0.05
RECENT = 0.1
"""Weight of the last step in how long one takes."""

AT_ONCE = 64 * 1024 * 1024
"""Bytes of messages over 1 MiB from processes that are held at a time: results until they are committed. A larger one
is alone."""

Report = Callable[[str, str, str, str], None]
"""execution, node, level, message"""


@dataclass(frozen=True, slots=True)
class HeavyLimits:
    processes: int
    memory: int
    seconds: float
    in_line: int
    """Steps of all workflows that wait."""


class PutOff(PassesThrough):
    """Too many heavy steps wait already: this one comes back after ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


class TypeSpec(Struct, frozen=True):
    """A node type of the application, as far as documents show it."""

    type: str
    control: ControlKind
    aliases: tuple[str, ...]
    kinds: dict[str, ParameterKind]
    local_names: frozenset[str]
    children: bool
    needs: frozenset[str]
    receives: bool


class Setting(Struct, frozen=True):
    """What a process is told when it begins."""

    limits: EngineLimits
    items_per_commit: int
    types: list[TypeSpec]
    cancel_grace: float | None = None


class Request(Struct, frozen=True):
    lease: Lease
    now: float


class Ask(Struct, frozen=True, tag=True):
    """The process needs something from a port, or from the application."""

    method: str
    arguments: msgspec.Raw


class Said(Struct, frozen=True, tag=True):
    """A line for the execution's log."""

    execution: str
    node: str
    level: str
    message: str


class Computed(Struct, frozen=True, tag=True):
    transition: Transition
    freed: int = 0


class Rendered(Struct, frozen=True, tag=True):
    """The parameters of a node with effects, as JSON."""

    parameters: bytes


class NotHere(Struct, frozen=True, tag=True):
    """The step needs code of the application."""


class Broken(Struct, frozen=True, tag=True):
    message: str
    is_limit: bool = False


class Died(Broken, frozen=True, tag=False):
    """Of the process itself, which ended without an answer."""


Message = Ask | Said | Computed | Rendered | NotHere | Broken

_messages: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_arguments = msgspec.msgpack.Decoder(list[Any])


class HeavySteps:
    def __init__(
        self,
        steps: Steps,
        scripts: ScriptSteps,
        ledger: Ledger,
        archive: Archive,
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
        """Told the name of each workflow that has heavy steps, by the hash of its definition."""
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
        self._held: dict[str, int] = {}
        """Bytes of large messages, by the token whose step they are of."""
        self._takes = SOONEST
        """Seconds that one step takes."""
        self._idle: list[ChildProcess] = []
        self._ends: set[asyncio.Task[None]] = set()
        """Of processes that were killed and are waited for."""
        self._known_heavy: OrderedDict[tuple[str, str], int] = OrderedDict()
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
        }
        self._task_options = task_options

    def expected(self, lease: Lease) -> bool:
        """Whether the step is known to be heavy: then it is not tried as a light one before."""
        known = self._known_heavy
        if not known or (key := _place(lease)) not in known:
            return False
        known[key] -= 1
        if known[key] > 0:
            return True
        del known[key]
        return False

    def full(self) -> list[str]:
        """Workflows of which enough heavy steps wait: more of theirs would only be put off."""
        if not self._lane.waiting:
            return []
        is_full = self._lane.waiting >= self._limits.in_line
        return self._lane.with_waiting(1 if is_full else self._child.queue)

    def waiting(self) -> list[str]:
        """Workflows that have heavy steps waiting."""
        return self._lane.with_waiting(1)

    def claimable(self, steps: int) -> int:
        """How many of so many may be claimed: while heavy ones wait, those claimed next may be heavy, too."""
        waiting = self._lane.waiting
        return min(steps, max(self._limits.in_line - waiting, 1)) if waiting else steps

    async def step(self, lease: Lease, body: Body | None) -> Step:
        """Of a graph. Raises PutOff."""
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
        """Raises PutOff."""
        match await self._answered(lease):
            case Computed(transition, freed):
                return ScriptStep(transition, freed=freed)
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
                    self._end_idle()  # it may not have been the fault of this step
                    answer = await self._compute(lease)
        except Overloaded:
            raise self._later() from None
        if isinstance(answer, Broken) and not answer.is_limit:
            raise InternalError(f"the process of a heavy step broke: {answer.message}")
        return answer

    def _later(self) -> PutOff:
        expected = self._takes * (self._lane.waiting + 1) / self._limits.processes
        return PutOff(min(max(expected, SOONEST), LATEST))

    def _remember(self, lease: Lease) -> None:
        self._known_heavy.setdefault(_place(lease), TIMES)
        if len(self._known_heavy) > REMEMBERED:
            self._known_heavy.popitem(last=False)

    async def _workflow(self, lease: Lease) -> str:
        if not lease.definition:
            return lease.node
        name = await self._steps.definitions.name_of(lease.definition)
        self.named(lease.definition, name)
        return name

    async def _here(self, step: Callable[..., Awaitable[S]], *arguments: Any) -> S:
        """With the full limits, in this process."""
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
        """The time of the processor counts: on a full machine, or while the store is slow, a step is not the worse for
        it. Raises TimeoutError."""
        seconds, until = self._limits.seconds, monotonic() + PATIENCE * self._limits.seconds
        before = process.processor_seconds()
        talk = asyncio.ensure_future(self._talk(process, lease))
        left = seconds
        try:
            while not (await asyncio.wait({talk}, timeout=left))[0]:
                now = process.processor_seconds()
                left = seconds - (now - before) if now is not None and before is not None else 0.0
                if left <= 0 or monotonic() >= until:
                    raise TimeoutError
                left = max(left, SHORTEST_LOOK)
            return await talk
        finally:
            talk.cancel()

    async def _talk(self, process: ChildProcess, lease: Lease) -> Message:
        await process.send(msgspec.msgpack.encode(Request(lease, self._ledger.now())))
        while True:
            self.over(lease)
            answer = await self._heard(process, lease)
            if answer is not None:
                return answer

    async def _heard(self, process: ChildProcess, lease: Lease) -> Message | None:
        """The next message, if it is the last one. What was held of one before is free then."""
        message = _messages.decode(await process.receive(partial(self._hold, lease)))
        match message:
            case Ask(method, arguments):
                await process.send(await self._answer(method, _arguments.decode(arguments)))
            case Said(execution, node, level, text):
                self._report(execution, node, level, text)
            case _:
                return message
        return None

    async def _hold(self, lease: Lease, size: int) -> None:
        """Large messages take turns: the result of a step is held until it is committed."""
        weight = min(size, AT_ONCE)
        await self._bytes.enter("", weight)
        self._held[lease.token] = weight

    def over(self, lease: Lease) -> None:
        """Nothing large of its step is held here any more."""
        if self._held and (weight := self._held.pop(lease.token, 0)):
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
        """None where no process can be started."""
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
            logger.warning("no process for heavy steps can be started now (%s): they are put off", error)
            raise PutOff(LATEST) from None
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
                found.append(_type_spec(node_type.spec, node_type.needs, node_type.receive is not None))
        return Setting(self._steps.limits, self._steps.items_per_commit, found, self._scripts.cancel_grace)

    def _end(self, process: ChildProcess) -> None:
        process.kill()
        end = asyncio.get_running_loop().create_task(process.over())
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


def _type_spec(spec: NodeSpec, needs: frozenset[str], receives: bool) -> TypeSpec:
    return TypeSpec(
        spec.type,
        spec.control,
        spec.aliases,
        dict(spec.kinds),
        spec.local_names,
        spec.children,
        needs,
        receives,
    )


def is_script(lease: Lease) -> bool:
    return lease.kind in SCRIPT_TOKENS or lease.execution_kind in SCRIPTED


def _place(lease: Lease) -> tuple[str, str]:
    return lease.definition, lease.node
