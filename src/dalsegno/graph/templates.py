"""Parameters with expressions, compiled once per definition and rendered once per step.

A template is any JSON value whose strings may contain expressions. Parts without expressions are shared by all
renderings, never copied, so a rendering must not be modified in place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from msgspec import Struct

from dalsegno.errors import UsageError
from dalsegno.lang import (
    MAX_NESTING,
    Entropy,
    Expression,
    ExpressionError,
    ExpressionFailed,
    Limits,
    Lookup,
    Meter,
    RootNames,
    compile_string,
)
from dalsegno.lang.errors import line_and_column


class TemplateErrors(UsageError):
    """The strings of a value that do not compile, each with its JSON pointer."""

    code = "DS-181"

    def __init__(self, errors: list[tuple[str, ExpressionError]]) -> None:
        super().__init__("\n".join(f"{pointer or '/'}: {error.message}" for pointer, error in errors))
        self.errors = errors


@dataclass(frozen=True, slots=True)
class TemplateReference:
    """A root that a template mentions, with its string and the place within it."""

    pointer: str
    root: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class _Text:
    """A string that contains expressions."""

    expression: Expression
    pointer: str


@dataclass(frozen=True, slots=True)
class _List:
    """A list with items that must be rendered."""

    items: list[Any]
    changing: tuple[tuple[int, _Part], ...]


@dataclass(frozen=True, slots=True)
class _Object:
    """An object with values that must be rendered."""

    fields: dict[str, Any]
    changing: tuple[tuple[str, _Part], ...]


_Part: TypeAlias = _Text | _List | _Object


class _Rendering(Struct, frozen=True):
    """The inputs of one rendering; walks the parts."""

    lookup: Lookup
    now: float
    limits: Limits | None
    local: Mapping[str, Any] | None
    entropy: Entropy
    meter: Meter | None

    def render(self, part: _Part) -> Any:
        if isinstance(part, _Text):
            return self.text(part)
        if isinstance(part, _List):
            items = list(part.items)
            for position, inner in part.changing:
                items[position] = self.render(inner)
            return items
        fields = dict(part.fields)
        for key, inner in part.changing:
            fields[key] = self.render(inner)
        return fields

    def text(self, part: _Text) -> Any:
        try:
            return part.expression.evaluate(
                self.lookup,
                now=self.now,
                limits=self.limits,
                local=self.local,
                entropy=self.entropy,
                meter=self.meter,
            )
        except ExpressionFailed as failure:
            failure.pointer = part.pointer
            raise


class Template:
    """A compiled parameter value."""

    __slots__ = ("_part", "_texts", "constant", "needs_meter", "roots", "value")

    def __init__(self, value: Any, part: _Part | None, texts: tuple[_Text, ...]) -> None:
        self.value = value
        """The value as written, with ``$$`` already replaced by ``$``."""
        self.constant = part is None
        self.needs_meter = any(text.expression.needs_meter for text in texts)
        self.roots: frozenset[str] = frozenset().union(*(text.expression.roots for text in texts))
        self._part = part
        self._texts = texts

    @property
    def strings(self) -> tuple[tuple[str, str], ...]:
        """Return every string that contains expressions, with its JSON pointer."""
        return tuple((text.pointer, text.expression.source) for text in self._texts)

    @property
    def references(self) -> tuple[TemplateReference, ...]:
        """Return every mention of a root, with its place."""
        return tuple(
            TemplateReference(
                text.pointer, reference.root, *line_and_column(text.expression.source, reference.offset)
            )
            for text in self._texts
            for reference in text.expression.references
        )

    def render(
        self,
        lookup: Lookup,
        *,
        now: float,
        limits: Limits | None = None,
        local: Mapping[str, Any] | None = None,
        entropy: Entropy = os.urandom,
        meter: Meter | None = None,
    ) -> Any:
        """Return the value with its expressions evaluated; raise `ExpressionFailed` with the ``pointer`` of the
        string.

        ``limits`` apply to each expression separately. A ``meter`` limits their total, together with its other users.
        """
        if self._part is None:
            return self.value
        return _Rendering(lookup, now, limits, local, entropy, meter).render(self._part)


class _Compiler:
    """Walks one value; collects errors instead of stopping at the first."""

    def __init__(self, names: RootNames, condition: bool) -> None:
        self.names = names
        self.condition = condition
        self.texts: list[_Text] = []
        self.errors: list[tuple[str, ExpressionError]] = []

    def compile(self, value: Any, pointer: str, depth: int) -> tuple[Any, _Part | None]:
        """Return the value to share, and the part to render if it contains expressions."""
        if isinstance(value, str):
            return self.text(value, pointer)
        if not isinstance(value, (list, dict)) or not value:
            return value, None
        if depth >= MAX_NESTING:
            self.errors.append((pointer, ExpressionError(f"nested deeper than {MAX_NESTING} levels")))
            return value, None
        return (
            self.list(value, pointer, depth)
            if isinstance(value, list)
            else self.object(value, pointer, depth)
        )

    def text(self, source: str, pointer: str) -> tuple[Any, _Part | None]:
        try:
            compiled = compile_string(source, self.names, self.condition)
        except ExpressionError as error:
            self.errors.append((pointer, error))
            return source, None
        if isinstance(compiled, str):
            return compiled, None
        text = _Text(compiled, pointer)
        self.texts.append(text)
        return source, text

    def list(self, items: list[Any], pointer: str, depth: int) -> tuple[Any, _Part | None]:
        compiled = [self.compile(item, f"{pointer}/{index}", depth + 1) for index, item in enumerate(items)]
        changing = tuple((index, part) for index, (_, part) in enumerate(compiled) if part is not None)
        same = all(shared is item for (shared, _), item in zip(compiled, items, strict=True))
        shared = items if same else [shared for shared, _ in compiled]
        return shared, _List(shared, changing) if changing else None

    def object(self, fields: dict[str, Any], pointer: str, depth: int) -> tuple[Any, _Part | None]:
        compiled = {
            key: self.compile(value, _below(pointer, key), depth + 1) for key, value in fields.items()
        }
        changing = tuple((key, part) for key, (_, part) in compiled.items() if part is not None)
        same = all(shared is fields[key] for key, (shared, _) in compiled.items())
        shared = fields if same else {key: shared for key, (shared, _) in compiled.items()}
        return shared, _Object(shared, changing) if changing else None


def _below(pointer: str, key: Any) -> str:
    return f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"


def compile_template(value: Any, names: RootNames, pointer: str, *, condition: bool = False) -> Template:
    """Compile a parameter value at ``pointer``; raise `TemplateErrors` with all errors.

    With ``condition`` a missing path is null, as in the operands of comparisons.
    """
    compiler = _Compiler(names, condition)
    shared, part = compiler.compile(value, pointer, 0)
    if compiler.errors:
        raise TemplateErrors(compiler.errors)
    return Template(shared, part, tuple(compiler.texts))
