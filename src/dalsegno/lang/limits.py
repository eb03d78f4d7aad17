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

BYTES_PER_VALUE = 48
"""What a string or a list is charged beyond its contents."""

BYTES_PER_OBJECT = 64
"""What a field of an object, or anything small that is made, is charged."""

# How many characters are one unit of work. A unit is one instruction: a million of them take less than a second.
WRITTEN = 8_192
"""Written to memory that was allocated."""
COPIED = 512
"""Compared with others, or looked up."""
SEARCHED = 64
"""Searched for others, or encoded."""
CONVERTED = 16
"""Looked up in the tables of Unicode."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Per evaluation (for scripts: per resume)."""

    instructions: int = 2_000_000
    stack_depth: int = 500
    allocated_bytes: int = 64 * 1024 * 1024
    result_bytes: int = 16 * 1024 * 1024
    is_light: bool = False
    """Whether a run that needs more instructions or memory than this raises `Heavy` instead of failing."""


class Heavy(BaseException):
    """A run with light limits needs more than those: it is to be done again, elsewhere, with the full ones."""


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Span:
    """What the limits hold for, in the words of whoever wrote the source, and where else its work can be done."""

    name: str
    elsewhere: str


EVALUATION = Span("one evaluation", "compute less in this expression, and the rest in a task")
TURN = Span("one turn (from one await to the next)", "move long computations into a task")


class SliceUsed(Exception):  # a signal to the machine, no error
    """The work of a script's slice is done: pause before the next instruction."""


NEVER = -(2**62)
"""The `Meter.mark` of what is not to pause."""


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

    def allowance(self) -> int:
        """Work that may be done before the meter is asked again; nothing is left at 0."""
        return self.work_left - self.mark if self.mark > 0 else self.work_left

    def too_much_work(self) -> ScriptThrow:
        self.exceed()
        return limit_exceeded(
            f"more than {self.limits.instructions:,} instructions in {self.span.name}: {self.span.elsewhere}, "
            "or raise Limits(instructions=…)"
        )

    def exceed(self) -> None:
        """More is needed than is left. Raises `Heavy` where the full limits are larger."""
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
        """Charge what compares or looks up so many characters."""
        if length >= COPIED:
            self.work(length // COPIED)

    def search(self, length: int) -> None:
        """Charge what searches or encodes so many characters."""
        if length >= SEARCHED:
            self.work(length // SEARCHED)

    def convert(self, text: str) -> None:
        """Charge what looks up each character of the text."""
        if len(text) >= CONVERTED:
            self.work(len(text) // (SEARCHED if text.isascii() else CONVERTED))

    def made(self, text: str, what: str) -> str:
        """Charge what a text that was just made takes beyond one byte for each character, which was charged before."""
        if not text.isascii():
            self.keep(text.__sizeof__() - len(text), what)
        return text
