"""Takes the values of credentials out of whatever a run produces, before it is stored or logged.

A `Redactor` belongs to one run and knows the credentials that the run has resolved. A run that resolves none has none.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import re2

from dalsegno.core.values import decode_value, encode_value
from dalsegno.engine.secrets.base64_runs import first_hidden, without_hidden
from dalsegno.engine.secrets.forms import shapes
from dalsegno.errors import NotJson
from dalsegno.lang.effects import ErrorValue
from dalsegno.model.failure import Failure
from dalsegno.ports.node import AwaitSignal, FanOut, Route, SleepUntil, StartChild, Working
from dalsegno.ports.secrets import Credential

LARGE = 256 * 1024
"""Bytes of JSON from which on an output is looked through in a thread."""
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
        """What a node or task returned, whatever that is."""
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
        """Raises NotJson, as storing it would, but without what is secret in the message."""
        try:
            raw = encode_value(value, what)
        except NotJson as error:
            raise NotJson(self.text(str(error))) from None
        if len(raw) < LARGE:
            return self._clean(raw, value)
        return await asyncio.to_thread(self._clean, raw, value)

    def _clean(self, raw: bytes, value: Any) -> Any:
        """The very value where nothing is found in it, which is almost always."""
        search = _search_for(self._known)
        if search is None or not search.finds_any(raw.decode()):
            return value
        return self.plain(decode_value(raw))

    def plain(self, value: Any) -> Any:
        """Data with texts, keys and numbers looked through."""
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
        """Bytes, dates, dataclasses, models are looked through as the store would hold them, if it can hold them."""
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

    def _details(self, details: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """What is not JSON is not stored either; its own words may hold anything."""
        if details is None:
            return None
        try:
            found: dict[str, Any] = self.plain(decode_value(encode_value(details, "the error's details")))
        except NotJson as error:
            return {"not_json": self.text(str(error))}
        return found

    def error(self, error: ErrorValue) -> ErrorValue:
        """What a script catches: all of it, whatever errors may come to carry."""
        parts = {name: self.plain(getattr(error, name)) for name in error.__struct_fields__}
        return ErrorValue(**parts)


def _values(credential: Credential) -> list[str]:
    values = list(credential.values())
    if credential.type == "basic":
        joined = f"{credential['username']}:{credential['password']}"
        values.append(base64.b64encode(joined.encode()).decode())
    return values


class _Search:
    """One expression for all shapes of all values, with a group for each, and what is written in place of each."""

    __slots__ = ("_marks", "_pattern")

    def __init__(self, shaped: Sequence[tuple[str, str]]) -> None:
        options = re2.Options()
        options.case_sensitive = False
        options.log_errors = False
        options.max_mem = _MEMORY
        self._pattern = re2.compile("|".join(f"({shape})" for shape, _ in shaped), options)
        self._marks = tuple(mark for _, mark in shaped)

    def redacted(self, text: str) -> str:
        readable = text if text.isascii() else text.encode(errors="replace").decode()
        if not self.finds_any(readable):
            return text
        plain: str = self._pattern.sub(lambda found: self._marks[found.lastindex - 1], readable)
        return _collapsed(without_hidden(plain, self._mark_of), self._marks)

    def finds_any(self, text: str) -> bool:
        return self._mark_of(text) is not None or first_hidden(text, self._mark_of) is not None

    def _mark_of(self, text: str) -> str | None:
        """What stands for the first value in a text, if there is one."""
        found = self._pattern.search(text)
        return self._marks[found.lastindex - 1] if found is not None else None


@lru_cache(maxsize=_REMEMBERED)
def _search_for(known: frozenset[tuple[str, frozenset[str]]]) -> _Search | None:
    """Longest shapes first: a value may be part of another one."""
    shaped = [
        (shape, f"[secret {name}]") for name, values in known for value in values for shape in shapes(value)
    ]
    shaped.sort(key=lambda pair: (-len(pair[0]), pair))
    return _Search(shaped) if shaped else None


def _collapsed(text: str, marks: tuple[str, ...]) -> str:
    """A value of several lines leaves one mark, not one for each."""
    for mark in set(marks):
        repeated = rf"({re.escape(mark)})(?:\s*{re.escape(mark)})+"
        text = re.sub(repeated, r"\1", text)
    return text
