"""Compiled programs, and how they are stored.

A stored program holds its bytecode: a resume never compiles, and runs the same code years later.
"""

from __future__ import annotations

from bisect import bisect_right
from hashlib import blake2b, sha256
from typing import Any

import msgspec
from msgspec import Struct

from dalsegno.lang.errors import FlowSyntaxError, SnapshotError
from dalsegno.lang.flow.compile.compiler import compile_unit
from dalsegno.lang.flow.syntax.parser import Parsed, parse_program
from dalsegno.lang.runtime.code import GLOBAL, CodeUnit, Constant, FunctionCode, Op, Place
from dalsegno.lang.runtime.limits import MAX_NESTING
from dalsegno.lang.runtime.prepared_code import steps_of

FORMAT = 1
"""The format of stored programs. A published format stays readable forever."""


class _Stored(Struct, array_like=True, frozen=True):
    """The stored form."""

    format: int
    fingerprint: str
    name: str
    source: str
    front_matter: dict[str, Any]
    functions: tuple[FunctionCode, ...]
    constants: tuple[Constant, ...]
    places: tuple[Place, ...]


_DECODER = msgspec.json.Decoder(_Stored)


class FlowProgram:
    """A script, ready to run as often as needed and from any thread."""

    kind = "script"
    __slots__ = (
        "_line_starts",
        "fingerprint",
        "front_matter",
        "hash",
        "live",
        "mentioned",
        "name",
        "source",
        "steps",
        "unit",
    )

    def __init__(self, name: str, front_matter: dict[str, Any], unit: CodeUnit, fingerprint: str) -> None:
        self.name = name
        self.front_matter = front_matter
        self.unit = unit
        self.source = unit.source
        self.steps = steps_of(unit)
        self.hash = sha256(unit.source.encode("utf-8", "surrogatepass")).hexdigest()
        self.fingerprint = fingerprint
        """The hash of source and bytecode, computed when the program was compiled.

        A snapshot fits only the instructions it came from.
        """
        self.live: dict[tuple[int, int], tuple[int, ...]] = {}
        """Cache of `live_slots`; shared by all machines of this program."""
        self._line_starts = [0, *(position + 1 for position, sign in enumerate(unit.source) if sign == "\n")]
        self.mentioned = _mentioned(unit)
        """Names of workflow-wide variables, and ``Inputs`` and ``Context`` if the program uses them."""

    def line(self, offset: int) -> int:
        """Return the 1-based line of an offset."""
        return bisect_right(self._line_starts, offset)

    @property
    def can_clean_up(self) -> bool:
        """Return True if it has a ``try``."""
        return any(function.protected_ranges for function in self.unit.functions)

    def live_slots(self, function: FunctionCode, position: int) -> tuple[int, ...]:
        """Return the slots whose variables are in scope before the instruction at ``position`` runs."""
        key = (function.number, position)
        found = self.live.get(key)
        if found is None:
            slots = [
                slot
                for scope in function.scopes
                if scope.start < position < scope.stop
                for slot in range(scope.first, scope.first + len(scope.names))
            ]
            found = self.live[key] = tuple(slots)
        return found

    def dump(self) -> bytes:
        """Return the stored form, which `load` of this and every later version reads."""
        unit = self.unit
        stored = _Stored(
            FORMAT,
            self.fingerprint,
            self.name,
            self.source,
            self.front_matter,
            unit.functions,
            unit.constants,
            unit.places,
        )
        return msgspec.json.encode(stored)

    @classmethod
    def load(cls, data: bytes) -> FlowProgram:
        """Load a program. Raise `SnapshotError` if the data is not a program or has a later format."""
        try:
            stored = _DECODER.decode(data)
        except (msgspec.MsgspecError, RecursionError, UnicodeError) as problem:
            raise SnapshotError(f"the stored program cannot be read: {problem}") from None
        if stored.format != FORMAT:
            raise SnapshotError(f"the stored program has format {stored.format}; this version knows {FORMAT}")
        unit = CodeUnit(stored.source, stored.functions, stored.constants, True, stored.places)
        try:
            return cls(stored.name, stored.front_matter, unit, stored.fingerprint)
        except (LookupError, TypeError) as problem:
            raise SnapshotError(f"the stored program is damaged: {problem}") from None


def _fingerprint(unit: CodeUnit) -> str:
    return blake2b(msgspec.json.encode(unit), digest_size=8).hexdigest()


def _mentioned(unit: CodeUnit) -> frozenset[Constant]:
    instructions = [step for function in unit.functions for step in function.instructions]
    names = [
        unit.constants[a] for opcode, a, _ in instructions if opcode in (Op.LOAD_GLOBAL, Op.STORE_GLOBAL)
    ]
    return frozenset(
        [*names, *[unit.constants[place.index] for place in unit.places if place.root == GLOBAL]]
    )


def compile(source: str, name: str | None = None, parsed: Parsed | None = None) -> FlowProgram:  # noqa: A001  # the name that users look for
    """Compile a script; `FlowSyntaxError` says what is wrong and where. `validate` finds other mistakes.

    ``parsed`` is the result of ``parse_program`` for the same source and name.
    """
    tree, front_matter = parsed if parsed is not None else parse_program(source, name)
    try:
        unit = compile_unit(source, tree)
        fingerprint = _fingerprint(unit)
    except RecursionError:
        raise FlowSyntaxError(f"nested deeper than {MAX_NESTING} levels") from None
    except UnicodeEncodeError as problem:
        raise FlowSyntaxError.at("half a surrogate pair is not a character", source, problem.start) from None
    return FlowProgram(tree.name or "script", front_matter, unit, fingerprint)
