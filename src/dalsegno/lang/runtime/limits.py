"""Limits of one evaluation, and the meter that enforces them.

Builtins charge the meter *before* they allocate: a request for a gigabyte is refused, not attempted.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from dalsegno.lang.errors import ScriptThrow, limit_exceeded

MAX_NESTING = 200
"""Maximum depth for the parser, ``==`` and the JSON code: far below what would exhaust the C stack."""

TOO_DEEP = f"nested deeper than {MAX_NESTING} levels"
"""The message for a source beyond that."""

MAX_SOURCE = 1_000_000
"""Maximum number of characters of one source."""

BYTES_PER_ITEM = 16
"""The charge for one slot of a list or object; an estimate, the same on every platform."""

BYTES_PER_VALUE = 48
"""The charge for a string or a list beyond its contents."""

BYTES_PER_OBJECT = 64
"""The charge for a field of an object, or for any other small value."""

# Characters per unit of work. A unit is one instruction: a million of them take less than a second.
WRITTEN = 8_192
"""Characters written to allocated memory."""
COPIED = 512
"""Characters compared with others, or looked up."""
SEARCHED = 64
"""Characters searched for others, or encoded."""
CONVERTED = 16
"""Characters looked up in Unicode tables."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one evaluation (for scripts: of one resume)."""

    instructions: int = 2_000_000
    stack_depth: int = 500
    allocated_bytes: int = 64 * 1024 * 1024
    result_bytes: int = 16 * 1024 * 1024
    is_light: bool = False
    """If true, a run that needs more instructions or memory raises `Heavy` instead of failing."""


class Heavy(BaseException):
    """A run with light limits needs more than those: it must be repeated elsewhere with the full limits."""


is_light: ContextVar[bool] = ContextVar("dalsegno-is-light", default=False)
"""If true, code in this context raises `Heavy` when it needs more than a light step may use."""


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Span:
    """The scope of the limits, in the words of the source's author, and where else the work can be done."""

    name: str
    advice: str


EVALUATION = Span("one evaluation", "compute less in this expression, and the rest in a task")
TURN = Span("one turn (from one await to the next)", "move long computations into a task")


class SliceUsed(Exception):  # a signal to the machine, not an error
    """The slice of a script is used up: pause before the next instruction."""


NEVER = -(2**62)
"""The `Meter.mark` of a run that does not pause."""


class Meter:
    """Counts down the `Limits`. Instructions and the work of library functions share one budget.

    Several evaluations may share a meter: together they may then use what a single one may use otherwise.
    """

    __slots__ = ("bytes_left", "limits", "mark", "span", "work_left")

    def __init__(self, limits: Limits, span: Span = EVALUATION) -> None:
        self.limits = limits
        self.span = span
        self.work_left = limits.instructions
        self.bytes_left = limits.allocated_bytes
        self.mark = NEVER
        """When `work_left` reaches this, a script's slice is used up."""

    def renew(self) -> None:
        """Reset the meter for the next evaluation."""
        self.work_left = self.limits.instructions
        self.bytes_left = self.limits.allocated_bytes

    def work(self, steps: int) -> None:
        """Charge a builtin that touches ``steps`` items as that many instructions."""
        self.work_left -= steps
        if self.work_left < 0:
            raise self.too_much_work()

    def charge(self, steps: int, size: int, what: str) -> None:
        """Charge work and a few bytes together."""
        self.work_left -= steps
        self.bytes_left -= size
        if self.work_left < 0 or self.bytes_left < 0:
            self.work(0)
            self.keep(0, what)

    def allowance(self) -> int:
        """Return the work allowed before the next check of the meter; 0 if nothing is left."""
        return self.work_left - self.mark if self.mark > 0 else self.work_left

    def too_much_work(self) -> ScriptThrow:
        self.exceed()
        return limit_exceeded(
            f"more than {self.limits.instructions:,} instructions in {self.span.name}: {self.span.advice}, "
            "or raise Limits(instructions=…)"
        )

    def exceed(self) -> None:
        """Handle an exceeded limit. Raise `Heavy` where the full limits are larger."""
        if self.limits.is_light:
            raise Heavy

    def allocate(self, size: int, what: str) -> None:
        """Charge ``size`` bytes about to be allocated for ``what``."""
        if size > self.limits.result_bytes:
            raise limit_exceeded(
                f"{what} would make a value of {size:,} bytes; the limit is {self.limits.result_bytes:,}: "
                "keep large data elsewhere and pass a reference, or raise Limits(result_bytes=…)"
            )
        self.keep(size + BYTES_PER_VALUE, what)

    def keep(self, size: int, what: str) -> None:
        """Charge ``size`` bytes that are not one value, and the work of writing them."""
        self.bytes_left -= size
        if self.bytes_left < 0:
            self.exceed()
            raise limit_exceeded(
                f"{what} would exceed the {self.limits.allocated_bytes:,} bytes that may be allocated in "
                f"{self.span.name}: keep large data elsewhere, or raise Limits(allocated_bytes=…)"
            )
        if size >= WRITTEN:
            self.work(size // WRITTEN)

    def items(self, count: int, what: str) -> None:
        """Charge a list or object of ``count`` slots, and the work of filling it."""
        self.allocate(count * BYTES_PER_ITEM, what)
        self.work(count)

    def fields(self, count: int, what: str) -> None:
        """Charge an object of ``count`` fields, or a list of that many small values, and the work of making them."""
        self.items(count, what)
        self.keep(count * BYTES_PER_OBJECT, what)

    def compare(self, length: int) -> None:
        """Charge an operation that compares or looks up this many characters."""
        if length >= COPIED:
            self.work(length // COPIED)

    def search(self, length: int) -> None:
        """Charge an operation that searches or encodes this many characters."""
        if length >= SEARCHED:
            self.work(length // SEARCHED)

    def convert(self, text: str) -> None:
        """Charge an operation that looks up each character of the text."""
        if len(text) >= CONVERTED:
            self.work(len(text) // (SEARCHED if text.isascii() else CONVERTED))

    def made(self, text: str, what: str) -> str:
        """Charge a new text's memory beyond one byte for each character, which was charged before."""
        if not text.isascii():
            self.keep(text.__sizeof__() - len(text), what)
        return text
