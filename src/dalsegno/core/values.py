"""User values as JSON bytes and back, with precise errors for what JSON cannot carry."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterator
from hashlib import blake2b
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import Raw

from dalsegno.errors import LimitExceeded, NotJson
from dalsegno.lang.expressions.syntax.lexer import is_unicode

MAX_DEPTH = 200
SHORT_TEXT = 128
"""Characters of a text up to which it is measured at each occurrence; longer ones are measured once."""
RAW_LOOKED_THROUGH = 64 * 1024
"""Bytes of JSON inside a value up to which its nesting is counted; the process that read a larger one has checked it.
"""
PARTS_PER_SLICE = 512
"""Lists and objects measured before other work gets a turn."""
DETAILS_BYTES, DETAILS_PARTS = 256 * 1024, 4 * 1024
"""Most bytes of JSON, and about the most lists and objects, in the details of a failure: event loops decode them."""

_decode = msgspec.json.Decoder().decode


def _convert(value: Any) -> Any:
    """Convert types that msgspec does not know: Pydantic models dump themselves."""
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json", round_trip=True)  # fields from which it can be made again: nothing computed
    raise TypeError(type(value).__name__)


_encode = msgspec.json.Encoder(enc_hook=_convert).encode
_in_order = msgspec.json.Encoder(order="deterministic").encode


def encode_value(
    value: Any, what: str = "the value", limit: int | None = None, parts: int | None = None
) -> bytes:
    """Return the JSON of a value, or raise NotJson that names the place inside ``what`` that JSON cannot carry.

    Raises LimitExceeded if the result would be longer than ``limit`` or has many more than ``parts`` lists and
    objects; that is checked before anything is encoded. `Raw`, also inside a value, is JSON that was checked when
    it was read.
    """
    raw = encode_small(value, what)
    if raw is not None:
        return raw
    survey = Survey(limit)
    for turn, _ in enumerate(survey.measure(value, what), 1):
        if parts is not None and turn * PARTS_PER_SLICE > parts:
            raise LimitExceeded(f"{what} has more than {parts:,} lists and objects in it")
    return encode_surveyed(value, what, survey)


def storable_details(details: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the details of a failure as they are stored: the reason instead, if they are too large or not JSON."""
    try:
        if len(encode_value(details, "the error's details", DETAILS_BYTES, DETAILS_PARTS)) <= DETAILS_BYTES:
            return details
    except NotJson as problem:
        return {"not_json": str(problem)}
    except LimitExceeded:
        pass
    most = f"{DETAILS_BYTES:,} bytes of JSON, or {DETAILS_PARTS:,} lists and objects"
    return {"too_large": f"the error's details have more than {most}"}


def encode_small(value: Any, what: str) -> bytes | None:
    """Encode a value that needs no measuring; None for any other."""
    if value is None:
        return b"null"
    kind = type(value)
    is_flat = kind is dict and len(value) <= 16 and _SCALARS.issuperset(map(type, value.values()))
    if not is_flat and kind not in _SCALARS:
        if kind is Raw:
            return bytes(value)
        if not is_small(value):
            return None
    try:
        raw = _encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise _no_json(value, what, error) from None
    if b"null" in raw and (place := _not_finite(value)) is not None:
        raise NotJson(f"{what} is not JSON: {place}")
    if len(raw) > MAX_DEPTH and _is_deep(raw):
        raise _too_deep(what)
    return raw


def encode_surveyed(value: Any, what: str, survey: Survey) -> bytes:
    """Encode a value that has been measured."""
    try:
        raw = _encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise _no_json(value, what, error) from None
    is_finite = survey.is_plain and survey.is_finite
    if not is_finite and b"null" in raw and (place := _not_finite(value)) is not None:
        raise NotJson(f"{what} is not JSON: {place}")
    if survey.deepest > MAX_DEPTH if survey.is_plain else _is_deep(raw):
        raise _too_deep(what)
    return raw


def _no_json(value: Any, what: str, error: Exception) -> NotJson:
    return NotJson(f"{what} is not JSON: {_first_invalid(value) or error}")


def encode_parsed(value: Any, what: str) -> bytes:
    """Encode what a strict JSON decoder returned: it is finite, valid Unicode, and no part of it occurs twice."""
    raw = _encode(value)
    if _is_deep(raw):
        raise _too_deep(what)
    return raw


def _is_deep(raw: bytes) -> bool:
    brackets = raw.count(b"[") + raw.count(b"{") if len(raw) > MAX_DEPTH else 0
    return brackets > MAX_DEPTH and nesting(raw) > MAX_DEPTH


def _too_deep(what: str) -> NotJson:
    return NotJson(f"{what} is nested more than {MAX_DEPTH} levels deep")


def is_small(value: Any) -> bool:
    """Return True if a value is so small that it can be encoded without a survey.

    That is at most 100 parts, each text counting as one more for every KiB.
    """
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is dict and len(value) <= 16 and all(map(_is_short, value.values())):
        return True  # many outputs: a few plain fields
    left = 100
    stack = [value]
    while stack:
        found = stack.pop()
        kind = type(found)
        if kind is str or kind is Raw:
            left -= 1 + ((len(found) if kind is str else memoryview(found).nbytes) >> 10)
        elif kind is dict:
            left -= 1 + len(found)
            if left < 0:
                return False
            try:
                left -= sum(map(len, found)) >> 10
            except TypeError:
                return False
            stack += found.values()
        elif kind is list or kind is tuple:
            left -= 1 + len(found)
            if left < 0:
                return False
            stack += found
        else:
            left -= 1
        if left < 0:
            return False
    return True


def _is_short(value: Any) -> bool:
    return type(value) in _SCALARS or (type(value) is str and len(value) <= 1024)


class Survey:
    """The minimum size of a value's JSON, and what else its encoding depends on.

    Shared parts are measured once, and nothing beyond the limit: this is quick however often a value refers to the
    same text.
    """

    __slots__ = (
        "_deepest_raw",
        "_heights",
        "_sizes",
        "_texts",
        "deepest",
        "is_finite",
        "is_plain",
        "limit",
        "size",
    )

    def __init__(self, limit: int | None) -> None:
        self.limit = math.inf if limit is None else limit
        self.size = 0
        self.deepest = 0
        self.is_finite = True
        self.is_plain = True
        """It holds only types that JSON has itself; otherwise only its JSON gives its size."""
        self._deepest_raw = 0
        self._sizes: dict[int, int] = {}
        self._heights: dict[int, int] = {}
        self._texts: dict[int, int] = {}

    def measure(self, value: Any, what: str) -> Iterator[None]:
        """Measure the value; yields now and then so that its caller may do other work. Raises LimitExceeded."""
        parts = self._look([value])
        self.size = parts[0]
        stack = [(0, iter(parts[1]), [parts[0], 0])]
        looked = 0
        while stack:
            own, children, state = stack[-1]
            child = next(children, None)
            if child is None:
                stack.pop()
                self._sizes[own], self._heights[own] = state[0], state[1] + 1
                if stack:
                    _add(stack[-1][2], state[0], state[1] + 1)
            elif (known := self._sizes.get(id(child))) is None:
                looked += 1
                if looked % PARTS_PER_SLICE == 0:
                    yield
                self._sizes[id(child)] = 0  # one that contains itself: the encoder reports it
                size, inner = self._look(child)
                stack.append((id(child), iter(inner), [size, 0]))
            else:
                _add(state, known, self._heights.get(id(child), 1))
            if stack and stack[-1][2][0] > self.limit:
                raise LimitExceeded(
                    f"{what} is more than {self.limit:,} bytes of JSON, the limit value_bytes; "
                    "keep large data elsewhere and pass a reference to it"
                )
        self.size, self.deepest = self._sizes[0], self._heights[0] - 1 + self._deepest_raw

    def _look(self, found: Any) -> tuple[int, list[Any]]:
        """Return the bytes of a container without the containers in it, and those containers."""
        size = 2 + len(found)
        if isinstance(found, dict):
            try:
                size += sum(map(self._text, found)) + len(found)
            except (TypeError, AttributeError):
                self.is_plain = False
            found = found.values()
        kinds = set(map(type, found))
        inner: list[Any] = []
        for kind in kinds:
            own = found if len(kinds) == 1 else [one for one in found if type(one) is kind]
            if kind is str:
                size += sum(map(self._text, own))
            elif kind is int:
                size += sum(map(int.bit_length, own)) // 4
            elif kind is float:
                self.is_finite = self.is_finite and all(map(math.isfinite, own))
            elif kind in _CONTAINERS:
                inner += own
            elif kind is Raw:
                size += sum(map(self._raw, own))
            elif kind is not bool and kind is not type(None):
                self.is_plain = False
        return size, inner

    def _raw(self, raw: Raw) -> int:
        """Return the size of JSON inside a value. The depth of a large one was checked when it was read."""
        size = memoryview(raw).nbytes
        if size <= RAW_LOOKED_THROUGH:
            self._deepest_raw = max(self._deepest_raw, nesting(bytes(raw)))
        return size

    def _text(self, text: str) -> int:
        if len(text) < SHORT_TEXT:
            return len(text) + 2 if text.isascii() and text.isprintable() else _length(text)
        known = self._texts.get(id(text))
        if known is None:
            known = self._texts[id(text)] = _length(text)
        return known


_CONTAINERS = frozenset((dict, list, tuple))
_SCALARS = frozenset((int, float, bool, type(None)))


def _add(state: list[int], size: int, height: int) -> None:
    state[0] += size
    state[1] = max(state[1], height)


def _length(text: str) -> int:
    """Return the length of a text's JSON; a text that has none is found when it is encoded."""
    try:
        return len(_encode(text))
    except (TypeError, ValueError):
        return len(text)


def value_digest(raw: bytes) -> str:
    """Return a digest of the value, independent of the order of its keys and its notation."""
    return blake2b(_in_order(_decode(raw)), digest_size=16).hexdigest()


def decode_value(raw: bytes | msgspec.Raw) -> Any:
    return _decode(raw)


def _not_finite(value: Any) -> str | None:
    """Return the place of NaN or infinity, which msgspec would write as null."""
    for path, found in _walk(value):
        if isinstance(found, float) and not math.isfinite(found):
            return f"{path} is {found}, which JSON cannot represent"
    return None


def _first_invalid(value: Any) -> str | None:
    for path, found in _walk(value):
        problem = _problem(found)
        if problem is not None:
            return f"{path} {problem}"
    return None


def _problem(value: Any) -> str | None:
    if isinstance(value, str):
        return (
            None if value.isascii() or is_unicode(value) else "contains a character that is not valid Unicode"
        )
    if isinstance(value, int) and value.bit_length() > 14_000:
        return "is an integer of more than 4,300 digits"
    try:
        _encode(value)
    except TypeError:
        return f"is of type {type(value).__name__}; return plain data, a dataclass or a Pydantic model"
    except (ValueError, RecursionError):
        return None
    return None


def _walk(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield leaves in the order they are met, with their paths.

    Containers that contain themselves end at the depth limit.
    """
    stack: list[tuple[str, Any, int]] = [("$", value, 0)]
    while stack:
        path, found, depth = stack.pop()
        if depth > MAX_DEPTH:
            continue
        if isinstance(found, dict):
            stack.extend((f"{path}.{key}", inner, depth + 1) for key, inner in reversed(found.items()))
        elif isinstance(found, list | tuple | set | frozenset):
            numbered = list(enumerate(found))
            stack.extend((f"{path}[{index}]", inner, depth + 1) for index, inner in reversed(numbered))
        else:
            yield path, found


_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"')
_BRACKETS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def nesting(raw: bytes) -> int:
    """Return the nesting of valid JSON, without recursion."""
    steps = array("b", _TEXTS.sub(b"", raw).translate(_BRACKETS, _NO_BRACKETS))
    return max(accumulate(steps), default=0)


def refuse_size(size: int, what: str, limit: int) -> None:
    """Raise LimitExceeded if a value of ``size`` bytes is larger than the engine's limit ``value_bytes``."""
    if size > limit:
        raise LimitExceeded(
            f"{what} is {size:,} bytes of JSON, more than the limit value_bytes of {limit:,}; "
            "keep large data elsewhere and pass a reference to it"
        )
