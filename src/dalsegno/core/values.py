"""User values as JSON bytes and back: what may travel, and a precise word about what may not."""

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

MAX_DEPTH = 200
SHORT_TEXT = 128
"""Characters of a text that is measured wherever it occurs; longer ones are measured once."""
PARTS_A_TURN = 512
"""Lists and objects that are measured before others get their turn."""

_decode = msgspec.json.Decoder().decode


def _convert(value: Any) -> Any:
    """Types msgspec does not know itself: Pydantic models speak for themselves."""
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json", round_trip=True)  # fields, from which it can be made again: nothing computed
    raise TypeError(type(value).__name__)


_encode = msgspec.json.Encoder(enc_hook=_convert).encode
_in_order = msgspec.json.Encoder(order="deterministic").encode


def encode_value(
    value: Any, what: str = "the value", limit: int | None = None, parts: int | None = None
) -> bytes:
    """JSON of a value, or NotJson that names the place inside ``what`` that JSON cannot carry.

    LimitExceeded where it would be longer than ``limit`` or has many more than ``parts`` lists and objects: that is
    found out before anything is encoded. `Raw` is JSON that was checked when it was read.
    """
    if value is None:
        return b"null"
    if type(value) is Raw:
        return bytes(value)
    survey = None
    if not is_small(value):
        survey = Survey(limit)
        for turn, _ in enumerate(survey.measure(value, what), 1):
            if parts is not None and turn * PARTS_A_TURN > parts:
                raise LimitExceeded(f"{what} has more than {parts:,} lists and objects in it")
    return encode_surveyed(value, what, survey)


def encode_surveyed(value: Any, what: str, survey: Survey | None) -> bytes:
    """The same for a value that is small, or that was measured."""
    if type(value) is Raw:
        return bytes(value)
    try:
        raw = _encode(value)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise NotJson(f"{what} is not JSON: {_culprit(value) or error}") from None
    is_plain = survey is not None and survey.is_plain
    if not (is_plain and survey.is_finite) and b"null" in raw and (place := _not_finite(value)) is not None:  # type: ignore[union-attr]
        raise NotJson(f"{what} is not JSON: {place}")
    if survey.deepest > MAX_DEPTH if is_plain else _is_deep(raw):  # type: ignore[union-attr]
        raise _too_deep(what)
    return raw


def encode_parsed(value: Any, what: str) -> bytes:
    """The same for what a strict JSON decoder returned: it is finite, valid Unicode, and no part of it occurs twice."""
    raw = _encode(value)
    if _is_deep(raw):
        raise _too_deep(what)
    return raw


def _is_deep(raw: bytes) -> bool:
    brackets = raw.count(b"[") + raw.count(b"{") if len(raw) > MAX_DEPTH else 0
    return brackets > MAX_DEPTH and _depth(raw) > MAX_DEPTH


def _too_deep(what: str) -> NotJson:
    return NotJson(f"{what} is nested more than {MAX_DEPTH} levels deep")


def is_small(value: Any) -> bool:
    """Whether a value is so small that nothing needs to be known before it is encoded: at most 100 parts, each text
    counting as one more for every KiB."""
    kind = type(value)
    if kind in _SCALARS:
        return True
    if kind is dict and len(value) <= 16:  # most outputs: a few plain fields
        for one in value.values():
            if type(one) not in _SCALARS and (type(one) is not str or len(one) > 1024):
                break
        else:
            return True
    left = 100
    stack = [value]
    while stack:
        found = stack.pop()
        kind = type(found)
        if kind is str:
            left -= 1 + (len(found) >> 10)
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


class Survey:
    """The size of a value's JSON, at least, and what else must be known of it. Parts that occur several times are
    looked at once, and not at all beyond the limit: however often a value refers to the same text, this is quick."""

    __slots__ = ("_heights", "_sizes", "_texts", "deepest", "is_finite", "is_plain", "limit", "size")

    def __init__(self, limit: int | None) -> None:
        self.limit = math.inf if limit is None else limit
        self.size = 0
        self.deepest = 0
        self.is_finite = True
        self.is_plain = True
        """Whether it holds nothing but what JSON has itself; else only its JSON tells."""
        self._sizes: dict[int, int] = {}
        self._heights: dict[int, int] = {}
        self._texts: dict[int, int] = {}

    def measure(self, value: Any, what: str) -> Iterator[None]:
        """Yields now and then, so that its caller may do something else. Raises LimitExceeded."""
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
                if looked % PARTS_A_TURN == 0:
                    yield
                self._sizes[id(child)] = 0  # one that contains itself: the encoder says so
                size, inner = self._look(child)
                stack.append((id(child), iter(inner), [size, 0]))
            else:
                _add(state, known, self._heights.get(id(child), 1))
            if stack and stack[-1][2][0] > self.limit:
                raise LimitExceeded(
                    f"{what} is more than {self.limit:,} bytes of JSON, the limit value_bytes; "
                    "keep large data elsewhere and pass a reference to it"
                )
        self.size, self.deepest = self._sizes[0], self._heights[0] - 1

    def _look(self, found: Any) -> tuple[int, list[Any]]:
        """Bytes of a container without the containers in it, and those."""
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
            elif kind is not bool and kind is not type(None):
                self.is_plain = False
        return size, inner

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
    """Of its JSON; a text that has none is found when it is encoded."""
    try:
        return len(_encode(text))
    except (TypeError, ValueError):
        return len(text)


def value_digest(raw: bytes) -> str:
    """Of the value: neither the order of its keys nor how it is written matters."""
    return blake2b(_in_order(_decode(raw)), digest_size=16).hexdigest()


def decode_value(raw: bytes | msgspec.Raw) -> Any:
    return _decode(raw)


def _not_finite(value: Any) -> str | None:
    """msgspec writes NaN and infinities as null; they are refused instead of being changed silently."""
    for path, found in _walk(value):
        if isinstance(found, float) and not math.isfinite(found):
            return f"{path} is {found}, which JSON has no word for"
    return None


def _culprit(value: Any) -> str | None:
    for path, found in _walk(value):
        problem = _problem(found)
        if problem is not None:
            return f"{path} {problem}"
    return None


def _problem(value: Any) -> str | None:
    if isinstance(value, str):
        return None if value.isascii() or is_unicode(value) else "holds a character that is not valid Unicode"
    if isinstance(value, int) and value.bit_length() > 14_000:
        return "is an integer of more than 4,300 digits"
    try:
        _encode(value)
    except TypeError:
        return f"is of type {type(value).__name__}; return plain data, a dataclass or a Pydantic model"
    except (ValueError, RecursionError):
        return None
    return None


def is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _walk(value: Any) -> Iterator[tuple[str, Any]]:
    """Leaves first-met first, with their paths; containers that contain themselves end at the depth limit."""
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
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))


def _depth(raw: bytes) -> int:
    """Nesting of valid JSON, without recursion."""
    steps = array("b", _TEXTS.sub(b"", raw).translate(_BRACKETS, _OTHERS))
    return max(accumulate(steps), default=0)
