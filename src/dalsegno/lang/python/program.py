"""A compiled Python workflow: created from a function, stored as bytes, loaded next to the running code."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from types import CodeType, FunctionType
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from dalsegno.lang.errors import SnapshotError
from dalsegno.lang.python.allowed_names import Naming
from dalsegno.lang.python.code import FunctionCode
from dalsegno.lang.python.compile.fragments import TICK, Natives, natives_of
from dalsegno.lang.python.compile.scopes import global_names
from dalsegno.lang.python.compile.source import Source, pack, unpack
from dalsegno.lang.python.durable_calls import Durable
from dalsegno.lang.python.environment import Surroundings

_MAGIC = b"dalsegno-python\n"
FORMAT = 1
_MOST_BYTES = 64 * 1024 * 1024

Resolve = Callable[[str, str, str], Any]
"""From the names of a module, a function and a workflow to the workflow of the running code, or None."""


Migration: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any]]
"""From the variables of the function that waits, by name, to those that shall have other values."""


class StoredProgram(msgspec.Struct, frozen=True):
    """The stored content of a program, independent of the process that runs it."""

    format: int
    name: str
    hash: str
    module: str
    qualname: str
    file: str
    first_line: int
    text: str
    imports: tuple[str, ...]
    functions: tuple[FunctionCode, ...]
    description: str = ""
    front_matter: dict[str, Any] = {}
    """A script's front matter, such as the time limit of an execution."""
    futures: tuple[str, ...] = ()
    """Features of the module's ``from __future__`` imports, which its fragments share."""


class PythonProgram:
    """The code of one version of a workflow, with the surroundings it runs in."""

    kind: ClassVar[Literal["python"]] = "python"

    def __init__(self, stored: StoredProgram, surroundings: Surroundings) -> None:
        self.stored = stored
        self.surroundings = surroundings
        self.functions = stored.functions
        self.waits_for: frozenset[str] = frozenset()
        """Names that its code needs and the running program lacks; it waits until they exist."""
        self.migrations: dict[int | None, Migration] = {}
        """By the number of the version from which machines are moved; None: from any other."""
        self._durables: dict[tuple[str, str], Durable[Any, Any] | None] = {}

    @property
    def name(self) -> str:
        return self.stored.name

    @property
    def hash(self) -> str:
        return self.stored.hash

    @property
    def front_matter(self) -> dict[str, Any]:
        return self.stored.front_matter

    @property
    def description(self) -> str:
        return self.stored.description

    @property
    def can_clean_up(self) -> bool:
        """Return True if it has a ``try`` or ``with`` around an ``await``."""
        return any(code.handlers for code in self.functions)

    @cached_property
    def source(self) -> Source:
        return Source(self.stored.file, self.stored.first_line, self.stored.text)

    @cached_property
    def naming(self) -> Naming:
        return Naming(self.surroundings, self.stored.imports, self._codes)

    def _codes(self) -> Iterator[CodeType]:
        return (fragment for natives in self.natives for fragment in natives.fragments)

    @cached_property
    def natives(self) -> tuple[Natives, ...]:
        """The fragments of each function, compiled by Python on first use."""
        return tuple(natives_of(code, self.stored.file, self.stored.futures) for code in self.functions)

    @cached_property
    def fragments(self) -> tuple[tuple[tuple[CodeType, tuple[int, ...]], ...], ...]:
        """For each function, for each fragment: its code and its free variables.

        The free variables are indices of the frame's cells.
        """
        return tuple(
            tuple(
                (fragment, tuple(code.variables.index(name) for name in fragment.co_freevars))
                for fragment in natives.fragments
            )
            for code, natives in zip(self.functions, self.natives, strict=True)
        )

    @cached_property
    def masks(self) -> tuple[tuple[tuple[int, ...], int], ...]:
        """For each function: the live variables before each instruction, and those that nested functions may share."""
        return tuple(
            (tuple(int(mask, 16) for mask in code.live), int(code.shared, 16)) for code in self.functions
        )

    @cached_property
    def outside(self) -> frozenset[str]:
        """The names that its functions take from the surroundings."""
        return frozenset(
            name for code in self.functions for name in code.variables[code.own + len(code.captured) :]
        )

    @cached_property
    def _read(self) -> frozenset[str]:
        """The names that its fragments read from the module, such as ``name`` and ``module.name``."""
        return frozenset().union(*map(global_names, self._codes()))

    def lacking(self) -> frozenset[str]:
        """Return the names that its code reads and that have no value in the running code. The machine itself counts
        rounds of loops.
        """
        around = self.surroundings
        cells = frozenset(name for name in self.outside if name != TICK and not around.has_cell(name))
        return cells.union(name for name in map(around.lacks_global, self._read) if name is not None)

    def durable(self, kind: str, name: str | None) -> Durable[Any, Any] | None:
        """Return the task or workflow behind a promise, if this program's code can name it."""
        if kind not in ("task", "workflow") or name is None:
            return None
        if (kind, name) not in self._durables:
            self._durables[kind, name] = self.naming.durable(kind, name)
        return self._durables[kind, name]

    def add_durable(self, durable: Durable[Any, Any]) -> None:
        """Remember a callable that the program has called, regardless of its origin."""
        self._durables[durable.kind, durable.name] = durable

    def dump(self) -> bytes:
        return _MAGIC + zlib.compress(msgspec.json.encode(self.stored), 6)

    @classmethod
    def load(
        cls, data: bytes, resolve: Resolve | None = None, own: PythonProgram | None = None
    ) -> PythonProgram:
        """Load a stored program on the globals of the running code.

        ``resolve`` may return the running workflow (or its function) for a module, a qualified name and the
        workflow's name; otherwise the module must be imported already. ``own`` is the same version in the running
        code, which takes precedence over the stored one.
        """
        stored = _decode(data)
        if own is not None:
            stored = own.stored
        found = resolve(stored.module, stored.qualname, stored.name) if resolve is not None else None
        function = getattr(found, "function", found)
        if isinstance(function, FunctionType):
            program = cls(stored, Surroundings.of(function))
        else:
            program = cls(stored, Surroundings.of_module(stored.module))
        if own is not None:
            program.migrations = own.migrations
        return program

    def __repr__(self) -> str:
        return f"<workflow '{self.name}' {self.hash[:12]}>"


def stored_text(data: bytes) -> str:
    """Return the source of a stored workflow for display; its module is not needed."""
    return _decode(data).text


def stored_program(data: bytes) -> StoredProgram:
    """Return a stored workflow for inspection: its module, its file and lines, its text."""
    return _decode(data)


def content_of(stored: StoredProgram) -> bytes:
    """Return the part of a stored program that decides its behaviour, independent of its position in the file."""
    functions = [
        [
            *(
                code.name,
                code.instructions,
                code.handlers,
                code.variables,
                code.parameters,
                code.own,
                code.captured,
            ),
            *(code.live, code.shared, pack(unpack(code.syntax), positions=False)),
            *((code.rest, code.named) if code.rest or code.named else ()),
        ]
        for code in stored.functions
    ]
    head = [stored.name, stored.module, stored.qualname, stored.imports, stored.front_matter, stored.futures]
    return sha256(msgspec.json.encode([head, functions], order="sorted")).digest()


def _decode(data: bytes) -> StoredProgram:
    if not data.startswith(_MAGIC):
        raise SnapshotError("this is not a stored Python workflow")
    try:
        inflater = zlib.decompressobj()
        text = inflater.decompress(data[len(_MAGIC) :], _MOST_BYTES)
        stored = msgspec.json.decode(text, type=StoredProgram)
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SnapshotError(f"the stored Python workflow is damaged: {error}") from error
    if stored.format != FORMAT:
        raise SnapshotError(
            f"the stored Python workflow '{stored.name}' has format {stored.format}; this version knows {FORMAT}"
        )
    return stored
