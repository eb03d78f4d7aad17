"""YAML text to data: built from parser events, without tags, without recursion, with a limit on aliases.

Scalars follow YAML 1.2's core schema, as JSON users expect: only ``true`` and ``false`` are booleans, so ``on`` stays a
key and ``no`` stays Norway; dates stay text. An alias repeats the node it names; the size of all repetitions is
limited, and an alias inside its own anchor is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_WORDS: dict[str, Any] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_MERGE = "<<"


_SHOWN = 60


class YamlProblem(Exception):
    """The text is not valid data: the violated rule, the reason, and the position if it is known (1-based)."""

    def __init__(self, rule: str, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.line = line
        self.column = column


@dataclass(slots=True)
class _Open:
    """A list or object under construction."""

    value: Any
    anchor: str | None
    weight: int = 2
    key: str | None = None
    has_key: bool = False
    merged: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class _Builder:
    max_depth: int
    max_repeated: int
    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    repeated: int = 0
    documents: int = 0
    result: Any = None

    def on_event(self, event: Any) -> None:
        if type(event) is yaml.ScalarEvent:  # the common case
            self._add(_scalar(event), 1 + len(event.value), event.anchor, event)
        elif isinstance(event, yaml.CollectionStartEvent):
            self._open(event)
        elif isinstance(event, yaml.CollectionEndEvent):
            closed = self.stack.pop()
            _merge(closed)
            self._add(closed.value, closed.weight, closed.anchor, event)
        elif isinstance(event, yaml.AliasEvent):
            self._repeat(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                raise _refused("syntax", event, "a second document begins here; a file holds one workflow")

    def _open(self, event: Any) -> None:
        if event.tag not in (None, "!", *_TAGS):
            raise _refused("syntax", event, f"the tag {_quoted(event.tag)} is not accepted; write plain data")
        if len(self.stack) >= self.max_depth:
            raise _refused("too-deep", event, f"nesting is deeper than {self.max_depth} levels; flatten it")
        if self.stack and _expects_key(self.stack[-1]):
            raise _refused("syntax", event, "a key must be text")
        if event.anchor:
            self.anchors.pop(event.anchor, None)
        self.stack.append(_Open({} if isinstance(event, yaml.MappingStartEvent) else [], event.anchor))

    def _repeat(self, event: Any) -> None:
        if event.anchor not in self.anchors:
            raise _refused("syntax", event, f"the alias '*{event.anchor}' names no finished anchor before it")
        value, weight = self.anchors[event.anchor]
        self.repeated += weight
        if self.repeated > self.max_repeated:
            raise _refused("too-large", event, "aliases repeat more data than a document may hold")
        self._add(value, weight, None, event)

    def _add(self, value: Any, weight: int, anchor: str | None, event: Any) -> None:
        if anchor:
            self.anchors[anchor] = (value, weight)
        if not self.stack:
            self.result = value
            return
        top = self.stack[-1]
        top.weight += weight
        if isinstance(top.value, list):
            top.value.append(value)
        elif _expects_key(top):
            top.key, top.has_key = _key(value, top, event), True
        elif top.key == _MERGE:
            top.has_key = False
            top.merged.extend(_mergeable(value, event))
        else:
            top.has_key = False
            top.value[top.key] = value


def read_yaml(text: str, max_depth: int, max_repeated: int) -> Any:
    """Return the data, or raise `YamlProblem`. ``max_repeated`` limits the characters that aliases repeat."""
    builder = _Builder(max_depth, max_repeated)
    loader = None
    try:
        loader = _Loader(text)
        while type(event := loader.get_event()) is not yaml.StreamEndEvent:
            builder.on_event(event)
    except yaml.MarkedYAMLError as error:
        raise _malformed(error) from None
    except yaml.reader.ReaderError as error:
        message = f"Character {error.position:,} (code {error.character!r}) is not allowed in YAML"
        raise YamlProblem("encoding", message) from None
    except UnicodeEncodeError as error:
        message = f"Character {error.start:,} is half of a surrogate pair, which is not a character"
        raise YamlProblem("encoding", message) from None
    finally:
        if loader is not None:
            loader.dispose()
    return builder.result


def _malformed(error: yaml.MarkedYAMLError) -> YamlProblem:
    mark = error.problem_mark or error.context_mark
    hint = " (indent with spaces, not tabs)" if "\\t" in (error.problem or "") else ""
    message = f"{error.problem or error.context}{hint}"
    return (
        YamlProblem("syntax", message, mark.line + 1, mark.column + 1)
        if mark
        else YamlProblem("syntax", message)
    )


def _refused(rule: str, event: Any, message: str) -> YamlProblem:
    mark = event.start_mark
    return YamlProblem(rule, message, mark.line + 1, mark.column + 1)


def _quoted(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text[: _SHOWN + 1].split())
    return f"'{text[:_SHOWN]}…'" if len(text) > _SHOWN else f"'{text}'"


def _expects_key(top: _Open) -> bool:
    return isinstance(top.value, dict) and not top.has_key


def _key(value: Any, top: _Open, event: Any) -> str:
    if isinstance(value, bool) or value is None or not isinstance(value, str | int):
        raise _refused("syntax", event, _no_key(value, getattr(event, "value", "")))
    key = str(value)
    if key in top.value:
        raise _refused(
            "duplicate-key", event, f"the key {_quoted(key)} appears twice in this object; keep one"
        )
    return key


def _no_key(value: Any, written: str) -> str:
    if not isinstance(value, bool | float) and value is not None:
        return f"the key {_quoted(value)} is not text; write it in quotes"
    if not written:
        return "a key is missing before this ':'"
    kind = "null" if value is None else "a boolean" if isinstance(value, bool) else "a number"
    return f'a key must be text, and without quotes YAML reads {written} as {kind}; write "{written}"'


def _mergeable(value: Any, event: Any) -> list[Any]:
    sources = value if isinstance(value, list) else [value]
    if not all(isinstance(source, dict) for source in sources):
        raise _refused("syntax", event, "'<<' takes an alias of an object, or a list of them")
    return sources


def _merge(closed: _Open) -> None:
    """Apply ``<<: *defaults``: the object's own keys win, then the sources in order."""
    for source in closed.merged:
        for key, value in source.items():
            closed.value.setdefault(key, value)


def _scalar(event: Any) -> Any:
    if event.tag not in (None, "!", _TAGS[0]):
        raise _refused("syntax", event, f"the tag {_quoted(event.tag)} is not accepted; write plain data")
    text: str = event.value
    if not event.implicit[0]:  # quoted, or tagged as text
        return text
    return _WORDS[text] if text in _WORDS else _number(text, event)


def _number(text: str, event: Any) -> Any:
    first = text[0]
    if first not in "+-.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        if len(text) > 4300:
            raise _refused("too-large", event, "the number has more than 4,300 digits; write it as text")
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _BASED.fullmatch(text):
        return int(text[2:], 8 if text[1] == "o" else 16)
    if _NOT_FINITE.fullmatch(text):
        raise _refused("not-finite", event, "NaN and Infinity are not numbers of JSON; use null or text")
    return text
