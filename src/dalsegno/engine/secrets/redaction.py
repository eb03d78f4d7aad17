"""Redaction: removal of credential values from everything a run produces, before it is stored or logged.

- A `Redactor` belongs to one run and knows the credentials that the run has resolved. A run that resolves none has no
  redactor.
- A value is found as it is, in URLs, in JSON, in HTML, in base64 and in hexadecimal. These shapes become one RE2
  expression, which finds all of them in a single pass in linear time. Each character may be written in any of its
  ways, so mixed spellings, as in URLs, are found as well.
- Base64 of a text that contains the value in another spelling cannot be written as a shape. Possible base64 is
  therefore decoded and searched: it may contain a URL that a server sent back.
"""

from __future__ import annotations

import asyncio
import base64
import html
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
import re2

from dalsegno.core.values import decode_value, encode_value, storable_details
from dalsegno.engine.secrets.credentials import SHORTEST
from dalsegno.errors import NotJson
from dalsegno.lang.runtime.effects import ErrorValue
from dalsegno.model.failure import Failure
from dalsegno.ports.node import AwaitSignal, FanOut, Route, SleepUntil, StartChild, Working
from dalsegno.ports.secrets import Credential

_SIGNS = "[A-Za-z0-9+/_-]"
_BREAK = r"(?:\r?\n|\\+r?\\*n)"
"""Line break within base64, also in its JSON spelling."""
_RUN = re2.compile(rf"{_SIGNS}{{12,}}(?:{_BREAK}{_SIGNS}{{4,}})*={{0,2}}")
_TO_STANDARD = str.maketrans("-_", "+/", "\r\n=")
_BREAKS = re.compile(r"\\+[rn]")
_NESTED = 2
"""Levels of nested base64 that are decoded."""

Base64Scanner = Callable[[str], str | None]
"""Returns the replacement for a text that contains a secret; None if it contains none."""


def without_hidden(text: str, judge: Base64Scanner, depth: int = _NESTED) -> str:
    """Return the text with every base64 run replaced that contains a secret: no part of such a run can be kept."""
    replaced: str = _RUN.sub(lambda run: found_in(run.group(), judge, depth) or run.group(), text)
    return replaced


def first_hidden(text: str, judge: Base64Scanner, depth: int = _NESTED) -> str | None:
    for run in _RUN.finditer(text):
        found = found_in(run.group(), judge, depth)
        if found is not None:
            return found
    return None


def found_in(run: str, judge: Base64Scanner, depth: int = _NESTED) -> str | None:
    """Decode a run and return its replacement, None if it contains nothing. A run may begin with characters that are
    not part of the base64: one of four offsets is the right one.
    """
    signs = (_BREAKS.sub("", run) if "\\" in run else run).translate(_TO_STANDARD)
    for skipped in range(4):
        part = signs[skipped:]
        left = len(part) % 4
        # A group of one character holds nothing; groups of two and three lack the stripped padding.
        part = part[:-1] if left == 1 else part + "=" * (-len(part) % 4)
        decoded = base64.b64decode(part).decode(errors="replace")
        found = judge(decoded)
        if found is None and depth > 1:
            found = first_hidden(decoded, judge, depth - 1)
        if found is not None:
            return found
    return None


_LETTERS = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_ESCAPABLE = frozenset("\"'\\/`$")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"}
_BASE64_VARIANTS = {"+": "-", "/": "_"}
_ARMOUR = "-----"
"""Start of the first and last line of a PEM file, which are not secret."""
_LONG_LINE = 16
_LONG = 512


def shapes(value: str) -> Iterator[str]:
    """Yield expressions for a value; none if it is too short to be searched for."""
    if len(value) < SHORTEST:
        return
    for text in (value, *_lines(value)):
        yield text.encode().hex()
        if len(value) > _LONG:
            yield from map(re2.escape, (*_spellings(text), *_base64(text.encode())))
            continue
        yield _escaped_pattern(text)
        for encoded in _base64(text.encode()):
            yield _escaped_pattern(encoded, _BASE64_VARIANTS)


def _spellings(text: str) -> set[str]:
    """Return the spellings of a text in a single encoding. Used for long values, for which anything more would take
    long.
    """
    in_address = {quote(text, safe=""), quote(text), quote_plus(text)}
    in_json = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    return {text, html.escape(text), repr(text)[1:-1], *in_address, *in_json}


def _lines(value: str) -> list[str]:
    """Return the lines of a key file, which may be passed on one by one."""
    lines = value.splitlines()
    if len(lines) < 2:
        return []
    return [line for line in lines if len(line) >= _LONG_LINE and not line.startswith(_ARMOUR)]


def _base64(raw: bytes) -> Iterator[str]:
    """Yield the three base64 texts of a value inside a longer one, where it begins at one of three positions of a
    group. Characters that depend on its neighbours are omitted.
    """
    for before, skipped in ((0, 0), (1, 2), (2, 3)):
        whole = (before + len(raw)) * 8 // 6
        yield base64.b64encode(bytes(before) + raw).decode()[skipped:whole]


def _escaped_pattern(text: str, variants: dict[str, str] | None = None) -> str:
    return "".join(_any_of(_alternatives(sign, variants or {})) for sign in text)


def _any_of(alternatives: list[str]) -> str:
    return alternatives[0] if len(alternatives) == 1 else f"(?:{'|'.join(alternatives)})"


def _alternatives(sign: str, variants: dict[str, str]) -> list[str]:
    alternatives = [re2.escape(sign)]
    if sign in _ESCAPABLE:
        alternatives[0] = r"\\*" + alternatives[0]
    if sign in _LETTERS:
        alternatives.append(r"\\+" + _LETTERS[sign])
    if sign in _ENTITIES:
        alternatives.append(_ENTITIES[sign])
    if sign in variants:
        alternatives.append(re2.escape(variants[sign]))
    if sign == " ":
        alternatives.append(r"\+")
    octets = sign.encode()
    alternatives.append("".join(f"%(?:25)*{octet:02x}" for octet in octets))
    units = sign.encode("utf-16-be")
    alternatives.append("".join(rf"\\+u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2)))
    if not sign.isalnum() or not sign.isascii():
        alternatives.append("".join(rf"\\+x{octet:02x}" for octet in octets))
        alternatives.append(f"&#0*{ord(sign)};")
        alternatives.append(f"&#x0*{ord(sign):x};")
    return alternatives


LARGE = 256 * 1024
"""Bytes of JSON from which on an output is searched in a thread."""
_MEMORY = 256 * 1024 * 1024
_REMEMBERED = 64


class Redactor:
    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: frozenset[tuple[str, frozenset[str]]] = frozenset()

    def learn(self, credential: Credential) -> None:
        self._known |= {(credential.name, frozenset(_values(credential)))}

    def text(self, text: str) -> str:
        search = _search_for(self._known)
        return text if search is None else search.redacted(text)

    async def returned(self, value: Any, what: str) -> Any:
        """Redact the return value of a node or task, including control results."""
        match value:
            case Route():
                return Route(await self._value(value.output, what), value.edges)
            case Working():
                return Working(await self._value(value.output, what), await self._value(value.json, what))
            case SleepUntil():
                return SleepUntil(value.due, await self._value(value.output, what))
            case FanOut():
                return FanOut(await self._value(value.items, what), value.window, value.on_item_error)
            case AwaitSignal():
                question = None if value.question is None else await self._value(value.question, what)
                return AwaitSignal(self.text(value.name), value.timeout, question)
            case StartChild():
                given = await self._value(value.input, what)
                return StartChild(
                    self.text(value.workflow), given, value.version, value.wait, value.definition
                )
            case _:
                return await self._value(value, what)

    async def _value(self, value: Any, what: str) -> Any:
        """Redact a value. Raises NotJson, as storing it would, with a redacted message."""
        try:
            raw = encode_value(value, what)
        except NotJson as error:
            raise NotJson(self.text(str(error))) from None
        if len(raw) < LARGE:
            return self._clean(raw, value)
        return await asyncio.to_thread(self._clean, raw, value)

    def _clean(self, raw: bytes, value: Any) -> Any:
        """Return the value itself if nothing is found in it, which is the usual case."""
        search = _search_for(self._known)
        if search is None or not search.finds_any(raw.decode()):
            return value
        return self.plain(decode_value(raw))

    def plain(self, value: Any) -> Any:
        """Return plain data with strings, keys and numbers redacted."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self._key(key): self.plain(inner) for key, inner in value.items()}
        if type(value) in (list, tuple):
            return type(value)([self.plain(inner) for inner in value])
        if isinstance(value, int | float) and not isinstance(value, bool):
            written = str(value)
            redacted = self.text(written)
            return value if redacted == written else redacted
        return value if value is None or isinstance(value, bool) else self._as_stored(value)

    def _as_stored(self, value: Any) -> Any:
        """Redact bytes, dates, dataclasses and models in their stored form, if they have one."""
        try:
            raw = encode_value(value)
        except NotJson:
            return value
        return self._clean(raw, value)

    def _key(self, key: Any) -> Any:
        return self.text(key) if isinstance(key, str) else key

    def failure(self, failure: Failure) -> Failure:
        return msgspec.structs.replace(
            failure,
            message=self.text(failure.message),
            code=self.text(failure.code),
            type=self.text(failure.type),
            details=self._details(failure.details),
            traceback=None if failure.traceback is None else self.text(failure.traceback),
        )

    def _details(self, details: dict[str, Any] | None) -> dict[str, Any] | None:
        """Redact details, or the reason for which they are not stored: that may quote anything, too."""
        if details is None:
            return None
        kept = storable_details(details)
        found: dict[str, Any] = self.plain(decode_value(encode_value(kept, "the error's details")))
        return found

    def error(self, error: ErrorValue) -> ErrorValue:
        """Redact all fields of the error that a script catches, including fields added later."""
        parts = {name: self.plain(getattr(error, name)) for name in error.__struct_fields__}
        return ErrorValue(**parts)


def _values(credential: Credential) -> list[str]:
    values = list(credential.values())
    if credential.type == "basic":
        joined = f"{credential['username']}:{credential['password']}"
        values.append(base64.b64encode(joined.encode()).decode())
    return values


class _Search:
    """One expression for all shapes of all values, with a group for each, and the replacement of each."""

    __slots__ = ("_pattern", "_replacements")

    def __init__(self, patterns: Sequence[tuple[str, str]]) -> None:
        options = re2.Options()
        options.case_sensitive = False
        options.log_errors = False
        options.max_mem = _MEMORY
        self._pattern = re2.compile("|".join(f"({shape})" for shape, _ in patterns), options)
        self._replacements = tuple(replacement for _, replacement in patterns)

    def redacted(self, text: str) -> str:
        readable = text if text.isascii() else text.encode(errors="replace").decode()
        if not self.finds_any(readable):
            return text
        plain: str = self._pattern.sub(lambda found: self._replacements[found.lastindex - 1], readable)
        return _collapsed(without_hidden(plain, self._replacement_in), self._replacements)

    def finds_any(self, text: str) -> bool:
        return self._replacement_in(text) is not None or first_hidden(text, self._replacement_in) is not None

    def _replacement_in(self, text: str) -> str | None:
        """Return the replacement of the first value in a text; None if there is none."""
        found = self._pattern.search(text)
        return self._replacements[found.lastindex - 1] if found is not None else None


@lru_cache(maxsize=_REMEMBERED)
def _search_for(known: frozenset[tuple[str, frozenset[str]]]) -> _Search | None:
    """Return the search for these values, longest shapes first: a value may be part of another one."""
    patterns = [
        (shape, f"[secret {name}]") for name, values in known for value in values for shape in shapes(value)
    ]
    patterns.sort(key=lambda pair: (-len(pair[0]), pair))
    return _Search(patterns) if patterns else None


def _collapsed(text: str, replacements: tuple[str, ...]) -> str:
    """Merge adjacent replacements: a value of several lines leaves one."""
    for replacement in set(replacements):
        repeated = rf"({re.escape(replacement)})(?:\s*{re.escape(replacement)})+"
        text = re.sub(repeated, r"\1", text)
    return text
