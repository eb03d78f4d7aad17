"""How much one evaluation may use, and the meter that counts it.

Builtins call the meter *before* they allocate: a request for a gigabyte is refused, not attempted.
"""

from __future__ import annotations

from dataclasses import dataclass

from dalsegno.lang.errors import ScriptThrow, limit_exceeded

MAX_NESTING = 200
"""Depth that the parser, ``==`` and the JSON code accept: far below what would exhaust the C stack."""

TOO_DEEP = f"nested deeper than {MAX_NESTING} levels"
"""What is said of a source beyond that."""

MAX_SOURCE = 1_000_000
"""Characters of one source."""

BYTES_PER_ITEM = 16
"""What one slot of a list or object is charged; an estimate, the same on every platform."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Per evaluation (for scripts: per resume)."""

    instructions: int = 2_000_000
    stack_depth: int = 500
    allocated_bytes: int = 64 * 1024 * 1024
    result_bytes: int = 16 * 1024 * 1024


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Span:
    """What the limits hold for, in the words of whoever wrote the source, and where else its work can be done."""

    name: str
    elsewhere: str


EVALUATION = Span("one evaluation", "compute less in this expression, and the rest in a task")
STEP = Span("the expressions of one step", "compute less in them, and the rest in a task")
TURN = Span("one turn (from one await to the next)", "move long computations into a task")


class SliceUsed(Exception):  # a signal to the machine, no error
    """The work of a script's slice is done: pause before the next instruction."""


NEVER = -1
"""The `Meter.mark` of what is not to pause: `Meter.work` raises before that."""


class Meter:
    """Counts down what `Limits` allows. Instructions and the work of library functions are one currency.

    Several evaluations may share a meter: together they may then use what one alone may use otherwise.
    """

    __slots__ = ("bytes_left", "limits", "mark", "span", "work_left")

    def __init__(self, limits: Limits, span: Span = EVALUATION) -> None:
        self.limits = limits
        self.span = span
        self.work_left = limits.instructions
        self.bytes_left = limits.allocated_bytes
        self.mark = NEVER
        """Where `work_left` reaches this, a script's slice is used up."""

    def renew(self) -> None:
        """For the next evaluation."""
        self.work_left = self.limits.instructions
        self.bytes_left = self.limits.allocated_bytes

    def work(self, steps: int) -> None:
        """Charge a builtin that touches ``steps`` items as that many instructions."""
        self.work_left -= steps
        if self.work_left < 0:
            raise self.too_much_work()

    def too_much_work(self) -> ScriptThrow:
        return limit_exceeded(
            f"more than {self.limits.instructions:,} instructions in {self.span.name}: {self.span.elsewhere}, "
            "or raise Limits(instructions=…)"
        )

    def allocate(self, size: int, what: str) -> None:
        """Charge ``size`` bytes about to be allocated for ``what``."""
        if size > self.limits.result_bytes:
            raise limit_exceeded(
                f"{what} would make a value of {size:,} bytes; the limit is {self.limits.result_bytes:,}: "
                "keep large data elsewhere and pass a reference, or raise Limits(result_bytes=…)"
            )
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise limit_exceeded(
                f"{what} would exceed the {self.limits.allocated_bytes:,} bytes that may be allocated in "
                f"{self.span.name}: keep large data elsewhere, or raise Limits(allocated_bytes=…)"
            )

    def items(self, count: int, what: str) -> None:
        """Charge a list or object of ``count`` slots, and the work of filling it."""
        self.allocate(count * BYTES_PER_ITEM, what)
        self.work(count)
