"""Evaluation of a JSON Schema against a value: within one document, in a limited number of steps.

* Every applied subschema and every visited member, item and name costs a step. Long texts, and values that are
  compared as a whole, cost by their size.
* References point into the same document. ``$id`` and ``$schema`` below the root have no effect.
* Patterns run on RE2. A search costs by the length of the text and the size of the compiled pattern.
* ``format`` and ``content…`` are annotations and are not checked.
* Values are compared by their canonical JSON, never in pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Final

from dalsegno.graph.json_schema.dialect import (
    LATEST,
    LONGEST_PATTERN,
    Path,
    Place,
    anchors_of,
    dialect_of,
    is_schema,
    pointer,
    shortened,
    shown,
    size_of,
    target_of,
)
from dalsegno.lang.values.regex import find_pattern, search_work

# ruff: noqa: ARG001 - every keyword has the same signature


TEXT_STEP: Final = 256
"""Characters searched or copied within one step."""
MOST_PATTERNS: Final = 64
"""Compiled patterns kept by one evaluation."""


class OutOfSteps(Exception):
    """The step limit is reached."""


class Unresolved(Exception):
    """A reference whose target is not a schema."""


class Errors(list[tuple[str, str]]):
    """A list of (pointer, message), limited to ``most`` entries."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    @property
    def is_full(self) -> bool:
        return len(self) >= self.most

    def note(self, path: Place, template: str, *values: Any) -> None:
        if not self.is_full:
            self.append((pointer(path), shortened(template.format(*map(shown, values)))))


class Verdict(Errors):
    """Records only that there is an error. Its message is not formatted, because it is not shown."""

    def __init__(self) -> None:
        super().__init__(1)

    def note(self, path: Place, template: str, *values: Any) -> None:
        self.append(("", template))


class Evaluation:
    """One evaluation of a value against a schema, limited to ``steps``.

    A light one charges for a pattern before compiling it.
    """

    def __init__(self, root: Mapping[str, Any], steps: int, *, is_light: bool = False) -> None:
        self.root = root
        self._is_light = is_light
        self.dialect = dialect_of(root) or LATEST
        self.left = steps
        self._keywords = KEYWORDS[self.dialect]
        self._anchors: dict[str, Any] | None = None
        self._patterns: dict[str, Any] = {}
        self._enums: dict[int, frozenset[str]] = {}

    def charge(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise OutOfSteps

    def check(self, schema: Any, value: Any, path: Place, errors: Errors) -> None:
        if schema is True:
            self.charge(1)
            return
        if schema is False:
            self.charge(1)
            errors.note(path, "{} is not expected here", value)
            return
        if not isinstance(schema, dict):
            raise Unresolved(shown(schema))
        self.charge(1 + len(schema))
        if self.dialect < 2019 and "$ref" in schema:
            _ref(self, schema["$ref"], value, schema, path, errors)  # sibling keywords have no effect
            return
        keywords = self._keywords
        for name, argument in schema.items():
            keyword = keywords.get(name)
            if keyword is not None:
                keyword(self, argument, value, schema, path, errors)
                if errors.is_full:
                    return

    def fits(self, schema: Any, value: Any) -> bool:
        errors = Verdict()
        self.check(schema, value, None, errors)
        return not errors

    def target(self, reference: Any) -> Any:
        self.charge(1 + len(reference))
        if self._anchors is None:
            self._anchors = self._named(reference)
        try:
            found, _ = target_of(self.root, reference, self._anchors or {})
        except LookupError:
            raise Unresolved(reference) from None
        if not is_schema(found):
            raise Unresolved(reference)
        return found

    def _named(self, reference: str) -> dict[str, Any] | None:
        """Return all anchors, which requires reading the whole document; None for a reference that is a pointer."""
        if reference.startswith(("#/", "#%")) or reference == "#":
            return None
        self.charge(size_of(self.root, self.left))
        return anchors_of(self.root, self.dialect)

    def matches(self, pattern: str, text: str) -> bool:
        compiled = self._patterns.get(pattern)
        if compiled is None:
            compiled = self._compiled(pattern)
        data = text.encode()
        self.charge(1 + search_work(compiled, len(data)))
        return compiled.search(data) is not None

    def _compiled(self, pattern: str) -> Any:
        self.charge(1 + len(pattern))
        if len(pattern) > LONGEST_PATTERN:
            raise Unresolved(pattern)
        compiled = find_pattern(pattern, self.charge if self._is_light else None)
        if not self._is_light:
            self.charge(compiled.programsize)
        if len(self._patterns) >= MOST_PATTERNS:
            self._patterns.clear()
        self._patterns[pattern] = compiled
        return compiled

    def canonical(self, value: Any) -> str:
        """Return text that is equal if and only if two JSON values are equal; 1 and 1.0 are."""
        parts: list[str] = []
        self._write(value, parts)
        return "".join(parts)

    def _write(self, value: Any, parts: list[str]) -> None:
        self.charge(1)
        if isinstance(value, str):
            self.charge(len(value) // TEXT_STEP)
            parts += (str(len(value)), '"', value)
        elif value is None or isinstance(value, bool):
            parts.append(f"{value};")
        elif isinstance(value, int | float):
            parts.append(f"{_number(value)};")
        elif isinstance(value, list):
            parts.append("[")
            for each in value:
                self._write(each, parts)
            parts.append("]")
        else:
            self.charge(len(value))
            parts.append("{")
            for name in sorted(value):
                self._write(name, parts)
                self._write(value[name], parts)
            parts.append("}")

    def one_of(self, listed: list[Any], value: Any) -> bool:
        known = self._enums.get(id(listed))
        if known is None:
            known = self._enums[id(listed)] = frozenset(self.canonical(each) for each in listed)
        return self.canonical(value) in known


def _number(value: float) -> str:
    if int(value) != value:
        return repr(value)
    return hex(int(value))  # linear time; decimal digits take quadratic time


Keyword = Callable[[Evaluation, Any, Any, Mapping[str, Any], Place, Errors], None]


# -- references and combinations --------------------------------------------------------------------------------


def _ref(run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors) -> None:
    run.check(run.target(argument), value, path, errors)


def _all_of(run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors) -> None:
    for each in argument:
        run.check(each, value, path, errors)


def _any_of(run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors) -> None:
    if not any(run.fits(each, value) for each in argument):
        errors.note(path, "{} is not valid under any of the given schemas", value)


def _one_of(run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors) -> None:
    fitting = sum(run.fits(each, value) for each in argument)
    if fitting == 0:
        errors.note(path, "{} is not valid under any of the given schemas", value)
    elif fitting > 1:
        errors.note(path, "{} is valid under {} of the given schemas, and must be under one", value, fitting)


def _not(run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors) -> None:
    if run.fits(argument, value):
        errors.note(path, "{} should not be valid under {}", value, argument)


def _if(run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors) -> None:
    branch = "then" if run.fits(argument, value) else "else"
    if branch in schema:
        run.check(schema[branch], value, path, errors)


# -- any value --------------------------------------------------------------------------------------------------


def _is_type(run: Evaluation, name: str, value: Any) -> bool:
    if name in ("integer", "number"):
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return name == "number" or isinstance(value, int) or (run.dialect > 4 and value.is_integer())
    kind = _KINDS.get(name)
    return kind is not None and isinstance(value, kind)


_KINDS: dict[str, type] = {
    "array": list,
    "boolean": bool,
    "null": type(None),
    "object": dict,
    "string": str,
}


def _type(run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors) -> None:
    names = [argument] if isinstance(argument, str) else argument
    if not any(_is_type(run, name, value) for name in names):
        errors.note(path, "{} is not of type {}", value, argument)


def _enum(run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors) -> None:
    if not run.one_of(argument, value):
        errors.note(path, "{} is not one of {}", value, argument)


def _const(run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors) -> None:
    if run.canonical(argument) != run.canonical(value):
        errors.note(path, "{} was expected", argument)


# -- numbers and texts ------------------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _minimum(run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors) -> None:
    if not _is_number(value):
        return
    if run.dialect == 4 and schema.get("exclusiveMinimum", False):
        _exclusive_minimum(run, argument, value, schema, path, errors)
    elif value < argument:
        errors.note(path, "{} is less than the minimum of {}", value, argument)


def _maximum(run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors) -> None:
    if not _is_number(value):
        return
    if run.dialect == 4 and schema.get("exclusiveMaximum", False):
        _exclusive_maximum(run, argument, value, schema, path, errors)
    elif value > argument:
        errors.note(path, "{} is greater than the maximum of {}", value, argument)


def _exclusive_minimum(
    run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors
) -> None:
    if _is_number(value) and value <= argument:
        errors.note(path, "{} is less than or equal to the minimum of {}", value, argument)


def _exclusive_maximum(
    run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors
) -> None:
    if _is_number(value) and value >= argument:
        errors.note(path, "{} is greater than or equal to the maximum of {}", value, argument)


def _multiple_of(
    run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors
) -> None:
    if not _is_number(value):
        return
    run.charge(10)
    if isinstance(value, int) and isinstance(argument, int):
        fails = bool(value % argument)
    else:
        try:
            quotient = value / argument
            fails = int(quotient) != quotient
        except OverflowError:
            fails = bool(Fraction(value) % Fraction(argument))
    if fails:
        errors.note(path, "{} is not a multiple of {}", value, argument)


def _pattern(run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors) -> None:
    if isinstance(value, str) and not run.matches(argument, value):
        errors.note(path, "{} does not match {}", value, argument)


def _size(kind: type[Any], word: str, *, at_least: bool) -> Keyword:
    def keyword(run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors) -> None:
        if not isinstance(value, kind):
            return
        if at_least and len(value) < argument:
            errors.note(path, f"{{}} is too short: it must have at least {{}} {word}", value, argument)
        elif not at_least and len(value) > argument:
            errors.note(path, f"{{}} is too long: it may have at most {{}} {word}", value, argument)

    return keyword


# -- arrays -----------------------------------------------------------------------------------------------------


def _each(run: Evaluation, schema: Any, value: list[Any], first: int, path: Place, errors: Errors) -> None:
    for index in range(first, len(value)):
        run.check(schema, value[index], Path(path, index), errors)
        if errors.is_full:
            return


def _items(run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors) -> None:
    if not isinstance(value, list):
        return
    if isinstance(argument, list) and run.dialect < LATEST:
        _prefix_items(run, argument, value, schema, path, errors)
        return
    first = len(schema.get("prefixItems", ())) if run.dialect >= LATEST else 0
    _each(run, argument, value, first, path, errors)


def _prefix_items(
    run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors
) -> None:
    if isinstance(value, list):
        for index, (item, each) in enumerate(zip(value, argument, strict=False)):
            run.check(each, item, Path(path, index), errors)


def _additional_items(
    run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors
) -> None:
    listed = schema.get("items")
    if isinstance(value, list) and isinstance(listed, list):
        _each(run, argument, value, len(listed), path, errors)


def _contains(run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors) -> None:
    if not isinstance(value, list):
        return
    bounded = run.dialect >= 2019
    least = schema.get("minContains", 1) if bounded else 1
    most = schema.get("maxContains") if bounded else None
    found = 0
    for item in value:
        found += run.fits(argument, item)
        if found >= least and most is None:
            return
        if most is not None and found > most:
            errors.note(path, "{} has too many items that fit 'contains': at most {}", value, most)
            return
    if found < least:
        errors.note(path, "{} has too few items that fit 'contains': at least {}", value, least)


def _unique_items(
    run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors
) -> None:
    if not argument or not isinstance(value, list):
        return
    seen: set[str] = set()
    for item in value:
        form = run.canonical(item)
        if form in seen:
            errors.note(path, "{} has equal items: {}", value, item)
            return
        seen.add(form)


def _unevaluated_items(
    run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors
) -> None:
    if not isinstance(value, list):
        return
    known = _evaluated_items(run, schema, value, own=False)
    run.charge(len(value))
    for index, item in enumerate(value):
        if index not in known:
            run.check(argument, item, Path(path, index), errors)


def _evaluated_items(run: Evaluation, schema: Any, value: list[Any], *, own: bool = True) -> set[int]:
    """Return the indexes evaluated by this schema or by one applied to the same value."""
    if not isinstance(schema, dict):
        return set()
    run.charge(1 + len(schema) + len(value))
    every = set(range(len(value)))
    items = schema.get("items")
    if (own and "unevaluatedItems" in schema) or isinstance(items, dict | bool):
        return every
    if isinstance(items, list) and "additionalItems" in schema:
        return every
    fixed = items if isinstance(items, list) else schema.get("prefixItems", ())
    known = set(range(min(len(fixed), len(value))))
    if run.dialect >= LATEST and "contains" in schema:
        known.update(index for index, item in enumerate(value) if run.fits(schema["contains"], item))
    for each in _beside(run, schema, value):
        known |= _evaluated_items(run, each, value)
    return known


# -- objects ----------------------------------------------------------------------------------------------------


def _properties(run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors) -> None:
    if isinstance(value, dict):
        run.charge(len(argument))
        for name, each in argument.items():
            if name in value:
                run.check(each, value[name], Path(path, name), errors)


def _pattern_properties(
    run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors
) -> None:
    if not isinstance(value, dict):
        return
    for pattern, each in argument.items():
        for name, member in value.items():
            if run.matches(pattern, name):
                run.check(each, member, Path(path, name), errors)


def _additional_properties(
    run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors
) -> None:
    if not isinstance(value, dict):
        return
    declared, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    _others(
        run,
        argument,
        {
            name: member
            for name, member in value.items()
            if name not in declared and not any(run.matches(pattern, name) for pattern in patterns)
        },
        path,
        errors,
    )


def _others(run: Evaluation, schema: Any, members: Mapping[str, Any], path: Place, errors: Errors) -> None:
    run.charge(len(members))
    for name, member in members.items():
        if schema is False:
            errors.note(path, "{} is not expected here", name)
        else:
            run.check(schema, member, Path(path, name), errors)
        if errors.is_full:
            return


def _property_names(
    run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors
) -> None:
    if isinstance(value, dict):
        for name in value:
            run.check(argument, name, path, errors)
            if errors.is_full:
                return


def _required(run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors) -> None:
    if isinstance(value, dict):
        run.charge(len(argument))
        for name in argument:
            if name not in value:
                errors.note(path, "{} is a required property", name)


def _dependencies(
    run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors
) -> None:
    if not isinstance(value, dict):
        return
    run.charge(len(argument))
    for name, needed in argument.items():
        if name not in value:
            continue
        if not isinstance(needed, list):
            run.check(needed, value, path, errors)
            continue
        run.charge(len(needed))
        for other in needed:
            if other not in value:
                errors.note(path, "{} is a dependency of {}", other, name)


def _unevaluated_properties(
    run: Evaluation, argument: Any, value: Any, schema: Any, path: Place, errors: Errors
) -> None:
    if isinstance(value, dict):
        known = _evaluated_properties(run, schema, value, own=False)
        _others(
            run,
            argument,
            {name: member for name, member in value.items() if name not in known},
            path,
            errors,
        )


def _evaluated_properties(
    run: Evaluation, schema: Any, value: Mapping[str, Any], *, own: bool = True
) -> set[str]:
    """Return the names evaluated by this schema or by one applied to the same value."""
    if not isinstance(schema, dict):
        return set()
    run.charge(1 + len(schema))
    if "additionalProperties" in schema or (own and "unevaluatedProperties" in schema):
        return set(value)
    declared = schema.get("properties", {})
    run.charge(len(declared))
    known = {name for name in declared if name in value}
    for pattern in schema.get("patternProperties", ()):
        known.update(name for name in value if run.matches(pattern, name))
    for each in _beside(run, schema, value):
        known |= _evaluated_properties(run, each, value)
    return known


def _beside(run: Evaluation, schema: Mapping[str, Any], value: Any) -> list[Any]:
    """Return the subschemas that are applied to the same value and accept it."""
    found: list[Any] = [run.target(schema[name]) for name in _REFERRING if name in schema]
    for name in ("allOf", "anyOf", "oneOf"):
        found += [each for each in schema.get(name, ()) if run.fits(each, value)]
    if "if" in schema:
        if run.fits(schema["if"], value):
            found += [schema["if"], schema.get("then", True)]
        else:
            found.append(schema.get("else", True))
    if isinstance(value, dict):
        found += [each for name, each in schema.get("dependentSchemas", {}).items() if name in value]
    return found


_REFERRING = ("$ref", "$recursiveRef", "$dynamicRef")


# -- dialects ---------------------------------------------------------------------------------------------------

_DRAFT_4: dict[str, Keyword] = {
    "$ref": _ref,
    "additionalItems": _additional_items,
    "additionalProperties": _additional_properties,
    "allOf": _all_of,
    "anyOf": _any_of,
    "dependencies": _dependencies,
    "enum": _enum,
    "items": _items,
    "maxItems": _size(list, "items", at_least=False),
    "maxLength": _size(str, "characters", at_least=False),
    "maxProperties": _size(dict, "properties", at_least=False),
    "maximum": _maximum,
    "minItems": _size(list, "items", at_least=True),
    "minLength": _size(str, "characters", at_least=True),
    "minProperties": _size(dict, "properties", at_least=True),
    "minimum": _minimum,
    "multipleOf": _multiple_of,
    "not": _not,
    "oneOf": _one_of,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "properties": _properties,
    "required": _required,
    "type": _type,
    "uniqueItems": _unique_items,
}
_DRAFT_6: dict[str, Keyword] = {
    **_DRAFT_4,
    "const": _const,
    "contains": _contains,
    "exclusiveMaximum": _exclusive_maximum,
    "exclusiveMinimum": _exclusive_minimum,
    "propertyNames": _property_names,
}
_DRAFT_7: dict[str, Keyword] = {**_DRAFT_6, "if": _if}
_DRAFT_2019: dict[str, Keyword] = {
    **{name: keyword for name, keyword in _DRAFT_7.items() if name != "dependencies"},
    "$recursiveRef": _ref,
    "dependentRequired": _dependencies,
    "dependentSchemas": _dependencies,
    "unevaluatedItems": _unevaluated_items,
    "unevaluatedProperties": _unevaluated_properties,
}
_DRAFT_2020: dict[str, Keyword] = {
    **{name: _DRAFT_2019[name] for name in _DRAFT_2019 if name not in ("$recursiveRef", "additionalItems")},
    "$dynamicRef": _ref,
    "prefixItems": _prefix_items,
}
KEYWORDS: dict[int, dict[str, Keyword]] = {
    4: _DRAFT_4,
    6: _DRAFT_6,
    7: _DRAFT_7,
    2019: _DRAFT_2019,
    2020: _DRAFT_2020,
}
