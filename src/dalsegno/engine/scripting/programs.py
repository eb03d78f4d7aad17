"""Compiled scripts and Python workflows as the engine runs them: both kinds look the same from here."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Literal, Protocol

from dalsegno.engine.budget import light_limits
from dalsegno.graph.workflow_limit import front_matter_limit
from dalsegno.lang import FlowProgram, Limits, Machine
from dalsegno.lang.durations import parse_duration
from dalsegno.lang.effects import Awaitable, Effect, ErrorValue, Outcome, WaitingSignal
from dalsegno.lang.python import PythonMachine, PythonProgram
from dalsegno.model.definition import Definition
from dalsegno.model.machine import Ranges

MachineStatus = Literal["running", "suspended", "completed", "failed", "paused"]


class RunningMachine(Protocol):
    """A machine between two stops: see the script machine's own documentation for what each part means."""

    @property
    def status(self) -> MachineStatus: ...

    @property
    def result(self) -> Any: ...

    @property
    def error(self) -> ErrorValue | None: ...

    @property
    def awaiting(self) -> Awaitable | None: ...

    @property
    def line(self) -> int: ...

    @property
    def missing(self) -> tuple[str, ...]:
        """Blobs without which it cannot go on; it is paused until they are provided."""

    def take_effects(self) -> list[Effect]: ...

    def take_logs(self) -> list[tuple[str, str]]: ...

    def resume(self, outcomes: Mapping[str, Outcome], *, now: float, budget: int | None = None) -> bool: ...

    def interrupt(self, error: ErrorValue, *, now: float, budget: int | None = None) -> bool: ...

    def provide(self, blobs: Mapping[str, bytes]) -> None: ...

    def reachable(self) -> Ranges: ...

    def waiting_signals(self) -> tuple[WaitingSignal, ...]: ...

    def dumps(self, put: Callable[[bytes], str] | None = None) -> bytes: ...

    def variables(self) -> dict[str, Any]: ...


class ScriptProgram:
    """A stored script or Python workflow, ready to run."""

    __slots__ = (
        "cancel_grace",
        "code",
        "definition",
        "input_schema",
        "is_own",
        "light_limits",
        "limits",
        "native",
        "timeout",
        "workflow_limit",
    )

    def __init__(self, definition: Definition, code: FlowProgram | PythonProgram, limits: Limits) -> None:
        self.code = code
        self._describe(definition, code.front_matter, limits)

    def _describe(self, definition: Definition, front_matter: Mapping[str, Any], limits: Limits) -> None:
        self.definition = definition
        self.limits = limits
        self.is_own = False
        """Whether its code is the running program's own; else it comes from the store."""
        self.light_limits = light_limits(limits)
        self.native = definition.kind == "python"
        """Whether its turns run user code, which belongs in a thread of its own."""
        self.timeout = _seconds(front_matter.get("timeout"))
        self.cancel_grace = _seconds(front_matter.get("cancel_grace"))
        """For how long it may clean up when it is asked to end. None: it does not say."""
        self.input_schema: Mapping[str, Any] | None = front_matter.get("input_schema") or None
        self.workflow_limit = front_matter_limit(front_matter, definition.name)

    def start(
        self, inputs: Any, context: Mapping[str, Any], now: float, budget: int | None, *, light: bool = False
    ) -> RunningMachine:
        """``light``: with the limits of a light turn."""
        if isinstance(self.code, PythonProgram):
            return PythonMachine.start(self.code, inputs, context, now=now, budget=budget, limits=self.limits)
        limits = self.light_limits if light else self.limits
        return Machine.start(self.code, inputs, context, now=now, budget=budget, limits=limits)

    async def read_blobs(
        self, snapshot: bytes, read: Callable[[str], Coroutine[Any, Any, bytes]]
    ) -> dict[str, bytes]:
        """Blobs that must be at hand before the snapshot is loaded. Scripts ask for theirs when they need them."""
        found: dict[str, bytes] = {}
        if not self.native:
            return found
        while names := PythonMachine.blobs_in(snapshot, found):
            for name in names:
                found[name] = await read(name)
        return found

    def line(self, number: int) -> str:
        """The text of a line of the user's file."""
        if isinstance(self.code, PythonProgram):
            lines, first = self.code.source.text.splitlines(), self.code.source.first_line
        else:
            lines, first = self.code.source.splitlines(), 1
        return lines[number - first].strip() if first <= number < first + len(lines) else ""

    def lacking(self) -> frozenset[str]:
        """Names that its code uses and this process does not have: those of another version of its module."""
        return self.code.lacking() if isinstance(self.code, PythonProgram) else frozenset()

    def wait_for(self, names: frozenset[str]) -> None:
        """A turn that uses one of these stops, and does not fail."""
        if isinstance(self.code, PythonProgram):
            self.code.waits_for = names

    def load(self, snapshot: bytes, blobs: Mapping[str, bytes], *, light: bool = False) -> RunningMachine:
        if isinstance(self.code, PythonProgram):
            return PythonMachine.loads(self.code, snapshot, blobs=blobs, limits=self.limits)
        return Machine.loads(self.code, snapshot, limits=self.light_limits if light else self.limits)


def _seconds(duration: Any) -> float | None:
    return None if duration is None else parse_duration(duration)


class AbsentProgram(ScriptProgram):
    """A Python workflow whose module this process does not have: it can be started here, and runs elsewhere."""

    __slots__ = ()

    def __init__(self, definition: Definition, front_matter: Mapping[str, Any], limits: Limits) -> None:
        self._describe(definition, front_matter, limits)
