"""Compiled scripts and Python workflows behind one interface, and the compilation of scripts before they are stored,
which reports all errors at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from dalsegno import lang
from dalsegno.engine.steps.budget import light_limits
from dalsegno.errors import InvalidInput, UsageError
from dalsegno.graph.documents.header import front_matter_limit
from dalsegno.lang import Finding, FlowProgram, FlowSyntaxError, Limits, Machine
from dalsegno.lang.durations import parse_duration
from dalsegno.lang.errors import caret_excerpt
from dalsegno.lang.flow.syntax.front_matter import split_front_matter
from dalsegno.lang.flow.syntax.parser import Parsed, parse_program
from dalsegno.lang.python import PythonMachine, PythonProgram
from dalsegno.lang.runtime.effects import Awaitable, Effect, ErrorValue, Outcome, WaitingSignal
from dalsegno.lang.runtime.limits import Meter
from dalsegno.lang.runtime.machine_state import MachineState
from dalsegno.model.definition import Definition, part_hash, script_name_problems
from dalsegno.model.machine import FAILURES, JournalSetting, Ranges, read_journal

MachineStatus = Literal["running", "suspended", "completed", "failed", "paused"]


class RunningMachine(Protocol):
    """A machine between two stops. The documentation of the script machine explains its parts."""

    @property
    def status(self) -> MachineStatus: ...

    @property
    def result(self) -> Any: ...

    @property
    def error(self) -> ErrorValue | None: ...

    @property
    def cut_short(self) -> bool: ...

    @property
    def raises_again(self) -> bool:
        """Whether it failed with an error that it was handling before its turn. Of scripts it is not known."""

    @property
    def awaiting(self) -> Awaitable | None: ...

    @property
    def line(self) -> int: ...

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of blobs that it needs to continue; it is paused until they are provided."""

    def take_effects(self) -> list[Effect]: ...

    def take_logs(self) -> list[tuple[str, str]]: ...

    def take_raised(self) -> frozenset[int]:
        """Return the numbers of the promises in awaits that have thrown since the last turn."""

    def move_to(self, context: Mapping[str, Any]) -> None:
        """Let another execution continue the suspended machine."""

    def assign(self, name: str, value: Any) -> None:
        """Set a variable of the function that waits. Raises LookupError, with the names that there are."""

    def resume(self, outcomes: Mapping[str, Outcome], *, now: float, budget: int | None = None) -> bool: ...

    def interrupt(self, error: ErrorValue, *, now: float, budget: int | None = None) -> bool: ...

    def provide(self, blobs: Mapping[str, bytes]) -> None: ...

    def reachable(self) -> Ranges: ...

    def waiting_signals(self) -> tuple[WaitingSignal, ...]: ...

    def dumps(self, put: Callable[[bytes], str] | None = None) -> bytes: ...

    def variables(self) -> dict[str, Any]: ...

    def state(self) -> MachineState: ...


class ScriptProgram:
    """A stored script or Python workflow in executable form."""

    __slots__ = (
        "cancel_grace",
        "code",
        "definition",
        "input_schema",
        "is_own",
        "journal",
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
        """Whether its code is the running program's own; otherwise it comes from the store."""
        self.light_limits = light_limits(limits)
        self.native = definition.kind == "python"
        """Whether its turns run user code, which needs a thread of its own."""
        self.timeout = _seconds(front_matter.get("timeout"))
        self.cancel_grace = _seconds(front_matter.get("cancel_grace"))
        """Seconds for which it may clean up when it is cancelled. None: not set."""
        self.input_schema: Mapping[str, Any] | None = front_matter.get("input_schema") or None
        self.journal = _journal(front_matter.get("journal"))
        self.workflow_limit = front_matter_limit(front_matter, definition.name)

    def start(
        self, inputs: Any, context: Mapping[str, Any], now: float, budget: int | None, *, light: bool = False
    ) -> RunningMachine:
        """Start a machine. ``light``: with the limits of a light turn."""
        if isinstance(self.code, PythonProgram):
            return PythonMachine.start(self.code, inputs, context, now=now, budget=budget, limits=self.limits)
        limits = self.light_limits if light else self.limits
        return Machine.start(self.code, inputs, context, now=now, budget=budget, limits=limits)

    async def read_blobs(
        self, snapshot: bytes, read: Callable[[str], Coroutine[Any, Any, bytes]]
    ) -> dict[str, bytes]:
        """Read the blobs that must be present before the snapshot is loaded. Scripts request theirs when they need
        them.
        """
        found: dict[str, bytes] = {}
        if not self.native:
            return found
        while names := PythonMachine.blobs_in(snapshot, found):
            for name in names:
                found[name] = await read(name)
        return found

    def line(self, number: int) -> str:
        """Return the text of a line of the user's file."""
        if isinstance(self.code, PythonProgram):
            lines, first = self.code.source.text.splitlines(), self.code.source.first_line
        else:
            lines, first = self.code.source.splitlines(), 1
        return lines[number - first].strip() if first <= number < first + len(lines) else ""

    def lacking(self) -> frozenset[str]:
        """Return the names that its code uses and this process lacks: those of another version of its module."""
        return self.code.lacking() if isinstance(self.code, PythonProgram) else frozenset()

    @property
    def can_clean_up(self) -> bool:
        """Whether errors at its awaits may be handled. Of code that is not here it is assumed."""
        return self.code.can_clean_up

    def wait_for(self, names: frozenset[str]) -> None:
        """Make a turn that uses one of these names stop instead of fail."""
        if isinstance(self.code, PythonProgram):
            self.code.waits_for = names

    def load(self, snapshot: bytes, blobs: Mapping[str, bytes], *, light: bool = False) -> RunningMachine:
        if isinstance(self.code, PythonProgram):
            return PythonMachine.loads(self.code, snapshot, blobs=blobs, limits=self.limits)
        return Machine.loads(self.code, snapshot, limits=self.light_limits if light else self.limits)


def _seconds(duration: Any) -> float | None:
    return None if duration is None else parse_duration(duration)


JOURNAL_VARIABLE = "DALSEGNO_JOURNAL"
"""The environment variable with the journal of workflows that declare none."""


def _journal(given: Any) -> JournalSetting:
    """Return the journal setting, that of the process if the workflow has none. A stored workflow runs even if this
    release does not know its setting."""
    try:
        return read_journal(os.environ.get(JOURNAL_VARIABLE) or None if given is None else given)
    except ValueError:
        return FAILURES


class AbsentProgram(ScriptProgram):
    """A Python workflow whose module this process does not have: it can be started here and runs elsewhere."""

    __slots__ = ()

    def __init__(self, definition: Definition, front_matter: Mapping[str, Any], limits: Limits) -> None:
        self._describe(definition, front_matter, limits)

    @property
    def can_clean_up(self) -> bool:
        return True


LONGEST_SHOWN = 100


class InvalidScript(UsageError):
    """A script that can be parsed but is not valid; carries all findings."""

    code = "DS-183"

    def __init__(self, name: str, findings: Sequence[Finding]) -> None:
        self.name = name
        self.findings = tuple(findings)
        noun = "error" if len(self.findings) == 1 else "errors"
        lines = [
            f"line {one.line}, column {one.column}: {one.message}\n{one.excerpt}" for one in self.findings
        ]
        super().__init__(f"script '{name}' has {len(self.findings)} {noun}:\n" + "\n".join(lines))


def compile_checked(source: str, name: str | None = None, meter: Meter | None = None) -> FlowProgram:
    """Compile a script. Raises FlowSyntaxError, InvalidScript, or InvalidInput for an invalid ``name``; a script with
    errors is not stored. A light ``meter`` raises Heavy before a costly pattern is compiled.
    """
    findings, program = examine(source, name, meter)
    errors = [finding for finding in findings if finding.severity == "error"]
    if errors:
        raise InvalidScript(program.name, errors)
    return program


def definition_hash(code: FlowProgram | PythonProgram) -> str:
    """Return the hash that identifies a program in a store: that of its content and, for a script, of its name, which
    its source need not contain. The same source deployed under two names is two definitions; each runs under its own
    name and permissions.
    """
    return code.hash if isinstance(code, PythonProgram) else part_hash(code.name, code.source)


def examine(
    source: str, name: str | None = None, meter: Meter | None = None
) -> tuple[list[Finding], FlowProgram]:
    """Return the findings of `check_script` and the compiled program from a single parse. Raises FlowSyntaxError, and
    InvalidInput for an invalid name.
    """
    parsed = parse_program(source, name)
    program = lang.compile(source, name, parsed)
    if problems := script_name_problems(program.name):
        raise InvalidInput(
            f"{program.name[:LONGEST_SHOWN]!r} cannot be a script's name: {' '.join(problems)}"
        )
    return check_script(source, parsed=parsed, meter=meter), program


def check_script(
    source: str,
    tasks: Iterable[str] | None = None,
    parsed: Parsed | None = None,
    meter: Meter | None = None,
) -> list[Finding]:
    """Return all findings about a script in source order: those of the language, and those about its front matter."""
    findings = lang.validate(source, tasks, parsed)
    try:
        front_matter, _ = split_front_matter(source)
    except FlowSyntaxError:
        return findings  # the findings report the syntax error
    findings += _schema_errors(front_matter, source, meter)
    findings += _limit_errors(front_matter, source)
    return sorted(findings, key=lambda finding: (finding.line, finding.column))


def _schema_errors(front_matter: Mapping[str, Any], source: str, meter: Meter | None) -> list[Finding]:
    """Check the ``input_schema`` at deploy time, not at each start."""
    schema = front_matter.get("input_schema")
    if not schema:
        return []
    from dalsegno.graph.json_schema.shape import schema_problems  # noqa: PLC0415 - only scripts with one need it

    line = _line_of("input_schema", source)
    excerpt = caret_excerpt(source, line, 1)
    return [
        Finding("input-schema", "error", f"input_schema{pointer}: {message}", line, 1, excerpt)
        for pointer, message in schema_problems(schema, meter)
    ]


def _limit_errors(front_matter: Mapping[str, Any], source: str) -> list[Finding]:
    """Check the ``concurrency`` at deploy time."""
    try:
        front_matter_limit(front_matter, str(front_matter.get("name", "")))
    except InvalidInput as error:
        line = _line_of("concurrency", source)
        return [Finding("bad-concurrency", "error", str(error), line, 1, caret_excerpt(source, line, 1))]
    return []


def _line_of(key: str, source: str) -> int:
    return next((number for number, text in enumerate(source.split("\n"), 1) if key in text), 1)
