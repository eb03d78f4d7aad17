"""Check that a document is a JSON Schema that this package can evaluate: values of keywords, references, patterns.

The whole document is read: subschemas, targets of references, and values of unknown keywords.

JSON Schemas of start payloads and approval forms: checked with the definition, and evaluated for every value.

No reference leaves the schema, patterns run on RE2, and a check ends after a limited number of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from dalsegno.errors import Finding
from dalsegno.graph.documents.document import SCHEMA_STEPS
from dalsegno.graph.documents.findings import quoted
from dalsegno.graph.json_schema.dialect import (
    LATEST,
    LONGEST_PATTERN,
    REFERENCES,
    Path,
    Place,
    anchors_of,
    dialect_of,
    is_schema,
    pointer,
    shown,
    target_of,
)
from dalsegno.graph.json_schema.evaluation import Errors, Evaluation, OutOfSteps, Unresolved
from dalsegno.lang.runtime.limits import Meter
from dalsegno.lang.values.regex import BadPattern, find_pattern

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_SCHEMA = frozenset(
    [
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
_SCHEMA_LISTS = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_SCHEMA_MAPS = frozenset(("$defs", "definitions", "dependentSchemas", "patternProperties", "properties"))
_DATA = frozenset(("const", "default", "enum", "example", "examples"))
"""Their values are not schemas, unless a reference leads there."""
_COUNTS = frozenset(
    [
        "maxContains",
        "maxItems",
        "maxLength",
        "maxProperties",
        "minContains",
        "minItems",
        "minLength",
        "minProperties",
    ]
)
_TEXTS = frozenset(
    [
        "$anchor",
        "$comment",
        "$dynamicAnchor",
        "$id",
        "$schema",
        "contentEncoding",
        "contentMediaType",
        "description",
        "format",
        "pattern",
        "title",
    ]
)
_FLAGS = frozenset(("deprecated", "readOnly", "uniqueItems", "writeOnly"))
_NUMBERS = frozenset(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"))

Problem = tuple[Place, str]


class Examination:
    """One pass over a schema. ``problems`` yields (place, message)."""

    def __init__(self, schema: Mapping[str, Any], meter: Meter | None = None) -> None:
        """``meter``: a light one where expensive patterns must be compiled elsewhere."""
        self._meter = meter
        self.root = schema
        self.dialect = dialect_of(schema) or LATEST
        self._anchors = anchors_of(schema, self.dialect)
        self._open: list[tuple[Place, Any]] = [(None, schema)]
        self._seen: set[int] = set()
        """Identities of the objects read as schemas. The document keeps them alive meanwhile."""

    def problems(self) -> Iterator[Problem]:
        if dialect_of(self.root) is None:
            named = shown(self.root["$schema"])
            yield (
                Path(None, "$schema"),
                f"{named} is not a known dialect; use draft 2020-12, or leave it out.",
            )
        while self._open:
            place, value = self._open.pop()
            if isinstance(value, bool):
                continue
            if not isinstance(value, dict):
                yield place, _not_valid(f"a schema must be an object or a boolean, not {shown(value)}")
            elif id(value) not in self._seen:
                self._seen.add(id(value))
                yield from self._object(place, value)

    def _object(self, place: Place, schema: dict[str, Any]) -> Iterator[Problem]:
        yield from self._identity(place, schema)
        for key, value in schema.items():
            here = Path(place, key)
            if key in REFERENCES:
                yield from self._reference(here, value)
            elif key in _SCHEMA:
                self._open.append((here, value))
            elif key in _SCHEMA_LISTS or key == "items":
                yield from self._schemas(here, key, value)
            elif key in _SCHEMA_MAPS or key == "dependencies":
                yield from self._named(here, key, value)
            elif (wrong := _wrong(key, value, self.dialect)) is not None:
                yield here, _not_valid(f"'{key}' {wrong}, not {shown(value)}")
            elif key == "pattern":
                yield from self._pattern(here, value)
            elif key not in _DATA:
                yield from self._unknown(here, value)

    def _identity(self, place: Place, schema: Mapping[str, Any]) -> Iterator[Problem]:
        """Refuse a base or dialect below the root: it would move references out of the document."""
        if place is None:
            return
        names = ("$id", "$schema") if self.dialect > 4 else ("$id", "id", "$schema")
        for name in names:
            value = schema.get(name)
            is_anchor = name != "$schema" and self.dialect < 2019 and str(value).startswith("#")
            if isinstance(value, str) and not is_anchor:
                yield (
                    Path(place, name),
                    f"'{name}' is allowed only at the root of a schema; leave it out here.",
                )

    def _reference(self, here: Path, value: Any) -> Iterator[Problem]:
        if not isinstance(value, str):
            yield here, _not_valid(f"'{here.step}' must be text, not {shown(value)}")
            return
        if not value.startswith("#"):
            yield (
                here,
                f"{quoted(value)} points outside the schema; copy it into '$defs' and use '#/$defs/…'.",
            )
            return
        try:
            target, place = target_of(self.root, value, self._anchors)
        except LookupError:
            yield here, f"{quoted(value)} is not in the schema; define it under '$defs'."
            return
        if not is_schema(target):
            yield here, f"{quoted(value)} is {shown(target)}, which is not a schema."
        elif target is not self.root:
            self._open.append((place or here, target))

    def _schemas(self, here: Path, key: str, value: Any) -> Iterator[Problem]:
        if key == "items" and not (isinstance(value, list) and self.dialect < LATEST):
            self._open.append((here, value))
        elif not isinstance(value, list) or not value:
            yield here, _not_valid(f"'{key}' must be a list of schemas, not {shown(value)}")
        else:
            self._open.extend((Path(here, index), each) for index, each in enumerate(value))

    def _named(self, here: Path, key: str, value: Any) -> Iterator[Problem]:
        if not isinstance(value, dict):
            yield here, _not_valid(f"'{key}' must be an object of schemas, not {shown(value)}")
            return
        for name, each in value.items():
            if key == "dependencies" and isinstance(each, list):
                if not _is_names(each):
                    yield (
                        Path(here, name),
                        _not_valid(f"a dependency must be a list of names, not {shown(each)}"),
                    )
                continue
            if key == "patternProperties":
                yield from self._pattern(Path(here, name), name)
            self._open.append((Path(here, name), each))

    def _pattern(self, place: Place, pattern: str) -> Iterator[Problem]:
        if len(pattern) > LONGEST_PATTERN:
            yield place, f"the regular expression has more than {LONGEST_PATTERN:,} characters."
            return
        try:
            find_pattern(pattern, self._meter.work if self._meter is not None else None)
        except (BadPattern, UnicodeEncodeError) as error:
            yield place, f"{quoted(pattern)} is not a regular expression that RE2 accepts: {error}."

    def _unknown(self, here: Path, value: Any) -> Iterator[Problem]:
        """Check the value of an unknown keyword. It is not a schema, but its references must not leave the document."""
        stack: list[tuple[Path, Any]] = [(here, value)]
        while stack:
            place, each = stack.pop()
            if isinstance(each, dict):
                yield from self._identity(place, each)
                for name in REFERENCES:
                    target = each.get(name)
                    if isinstance(target, str) and not target.startswith("#"):
                        yield from self._reference(Path(place, name), target)
                stack.extend((Path(place, name), below) for name, below in each.items())
            elif isinstance(each, list):
                stack.extend((Path(place, index), below) for index, below in enumerate(each))


def _not_valid(reason: str) -> str:
    return f"Not a valid JSON Schema: {reason}."


def _wrong(key: str, value: Any, dialect: int) -> str | None:
    """Return the required form of a keyword's value if the value has another; None if it is valid."""
    if key in _NUMBERS:
        return _wrong_number(key, value, dialect)
    for names, fits, wanted in _SHAPES:
        if key in names:
            return None if fits(value) else wanted
    return None


def _wrong_number(key: str, value: Any, dialect: int) -> str | None:
    if dialect == 4 and key.startswith("exclusive"):
        return None if isinstance(value, bool) else "must be true or false in draft 4"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "must be a number"
    return "must be more than 0" if key == "multipleOf" and value <= 0 else None


def _is_count(value: Any) -> bool:
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and not isinstance(value, bool) and value >= 0


def _is_names(value: Any) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(each, str) for each in value)
        and len(set(value)) == len(value)
    )


def _is_types(value: Any) -> bool:
    if isinstance(value, str):
        return value in TYPES
    return _is_names(value) and bool(value) and all(each in TYPES for each in value)


def _is_names_by_name(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_names(each) for each in value.values())


_SHAPES: tuple[tuple[frozenset[str], Callable[[Any], bool], str], ...] = (
    (_COUNTS, _is_count, "must be a whole number from 0 on"),
    (_TEXTS, lambda value: isinstance(value, str), "must be text"),
    (_FLAGS, lambda value: isinstance(value, bool), "must be true or false"),
    (frozenset(("enum", "examples")), lambda value: isinstance(value, list), "must be a list"),
    (frozenset(("required",)), _is_names, "must be a list of different names"),
    (frozenset(("dependentRequired",)), _is_names_by_name, "must be an object of lists of names"),
    (frozenset(("type",)), _is_types, f"must be one or several of {', '.join(TYPES)}"),
)


# -- inputs and forms ----------------------------------------------------------------------------------------


MAX_PROBLEMS = 50
_TOO_DEEP = "The schema nests or refers to itself too deeply."


def schema_problems(schema: Mapping[str, Any], meter: Meter | None = None) -> list[tuple[str, str]]:
    """Return (pointer within the schema, message) of at most `MAX_PROBLEMS` problems of a schema.

    A light ``meter`` charges for patterns before they are compiled.
    """
    found = islice(Examination(schema, meter).problems(), MAX_PROBLEMS)
    return list(dict.fromkeys((pointer(place), message) for place, message in found))


def check_input(schema: Mapping[str, Any], payload: Any, steps: int = SCHEMA_STEPS) -> list[Finding]:
    """Return the reasons why a payload does not match ``schema``, with pointers into the payload."""
    found = found_within(schema, payload, steps)
    if found is None:
        message = f"Checking the payload takes more than {steps:,} steps (limit 'schema_steps')."
        return [Finding("", "input-schema", message)]
    return found


def found_within(
    schema: Mapping[str, Any], payload: Any, steps: int, *, is_light: bool = False
) -> list[Finding] | None:
    """Like `check_input`, but return None if ``steps`` are exceeded.

    A light check compiles only patterns that it can pay for.
    """
    errors = Errors(MAX_PROBLEMS)
    problem = None
    try:
        Evaluation(schema, steps, is_light=is_light).check(schema, payload, None, errors)
    except OutOfSteps:
        return None
    except RecursionError:
        problem = _TOO_DEEP
    except Unresolved as error:
        problem = f"The schema refers to {quoted(str(error))}, which it lacks."
    except BadPattern as error:
        problem = f"A pattern of the schema cannot be compiled: {error}."
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        problem = (
            "The schema is not a valid JSON Schema."  # stored before the current checks of schemas existed
        )
    found = [Finding(place, "input-schema", message) for place, message in errors]
    return [*found, Finding("", "input-schema", problem)] if problem is not None else found
