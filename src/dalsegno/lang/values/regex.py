"""Regular expressions of users: always RE2, whose time is linear in the text and in the size of the pattern.

A match may cost as many steps per byte of the text as the compiled pattern has instructions, so that product is
charged. Only a few compiled patterns are kept: each may take up to `MAX_MEMORY`.
``replaceMatches()`` replaces every match of a pattern by a text that may refer to its groups.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import re2

from dalsegno.lang.errors import ScriptThrow, wrong_argument
from dalsegno.lang.runtime.limits import BYTES_PER_OBJECT, Meter
from dalsegno.lang.values.kinds import Host

MAX_PATTERN = 1_000
MAX_MEMORY = 2 * 1024 * 1024
"""Maximum memory of one compiled pattern and its cache of states, in bytes."""
MAX_COMPILED = 32
"""Number of patterns kept: compiled ones, and the errors of invalid ones."""
STEPS = 96
"""Steps of the pattern's machine per unit of work."""
_CALL = 8
"""Units of work of any search."""
_REFUSAL = 200_000
"""Maximum units of work of a pattern that cannot be compiled."""


class BadPattern(ValueError):
    """RE2 does not accept the pattern, or the pattern is too large."""


def _options(never_capture: bool) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY
    options.never_capture = never_capture
    return options


_CAPTURING, _TESTING = _options(False), _options(True)
_known: OrderedDict[tuple[str, bool], Any] = OrderedDict()
"""Compiled patterns and the `BadPattern` of invalid ones, least recently used first.

The key is the pattern and whether it captures.
"""


def known_pattern(pattern: str, *, captures: bool = False) -> Any:
    """Return the pattern if it is compiled already, else None. Raise BadPattern if it is known to be invalid."""
    found = _known.pop((pattern, captures), None)
    if found is not None:
        _remember(pattern, captures, found)
        if isinstance(found, BadPattern):
            raise BadPattern(*found.args)
    return found


def compiled_pattern(pattern: str, *, captures: bool = False) -> Any:
    """Compile the pattern, in at most as many units of work as `compile_work` says. Raise BadPattern.

    RE2 holds the interpreter's lock meanwhile: other threads are blocked.
    """
    try:
        found = re2.compile(pattern, _CAPTURING if captures else _TESTING)
    except re2.error as problem:
        reason = problem.args[0] if problem.args else "unknown"
        bad = BadPattern(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason))
        _remember(pattern, captures, bad)
        raise bad from None
    finally:
        re2.purge()  # re2 itself would keep 128 patterns of any size
    _remember(pattern, captures, found)
    return found


def _remember(pattern: str, captures: bool, found: Any) -> None:
    _known[pattern, captures] = found
    while len(_known) > MAX_COMPILED:
        _known.popitem(last=False)


def find_pattern(pattern: str, charge: Callable[[int], None] | None = None, *, captures: bool = False) -> Any:
    """Return the compiled pattern, or raise BadPattern.

    ``charge`` is called with the estimated work before a new pattern is compiled.
    """
    known = known_pattern(pattern, captures=captures)
    if known is not None:
        return known
    if charge is not None:
        charge(compile_work(pattern))
    return compiled_pattern(pattern, captures=captures)


def compile_pattern(pattern: str, meter: Meter, *, captures: bool = True) -> Any:
    """Return the compiled pattern. Raise a script error if it is too long or RE2 refuses it.

    A light meter is charged beforehand, so that a costly pattern is compiled elsewhere.
    """
    if len(pattern) > MAX_PATTERN:
        raise wrong_argument(f"the pattern is longer than {MAX_PATTERN} characters")
    is_light = meter.limits.is_light
    is_new = (pattern, captures) not in _known
    try:
        compiled = find_pattern(pattern, meter.work if is_light else None, captures=captures)
    except BadPattern as problem:
        if is_new and not is_light:
            meter.work(min(compile_work(pattern), _REFUSAL))
        raise wrong_argument(f"bad regular expression '{pattern}': {problem}") from None
    except UnicodeEncodeError:
        raise _half_a_character() from None
    if is_new and not is_light:
        meter.work(compiled.programsize)
    return compiled


def _half_a_character() -> ScriptThrow:
    return wrong_argument("the text or the pattern holds half a surrogate pair, which is not a character")


# -- cost of compiling -----------------------------------------------------------------------------------------

_ANY_PATTERN = 60
"""Units of work of the shortest pattern."""
_PLAIN = 2
"""Units of work of one character, in each repetition."""
_WIDE = 15
"""Units of work of an item that matches most characters, such as a dot."""
_CLASS = 4
_MEMBER, _ASCII_MEMBER = 2, 1
"""Units of work of each character in a character class, and of each if all of them are ASCII."""
_UNICODE, _NO_UNICODE = 4_000, 8_000
"""Units of work of a Unicode class such as ``\\pL``, and of its complement."""
_WIDE_PAIRS = 20
"""Pairs of wide items per unit of work: RE2 compares each with those before."""
MOST_COMPILE_WORK = 700_000
"""Maximum units of work of any pattern up to the maximum length: RE2 gives up at its memory limit."""

_TOKEN = re.compile(
    r"(?P<unicode>\\[pP](?:\{[^}]*\}|.)?)"
    r"|(?P<negated>\[\^\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\])"
    r"|(?P<set>\[\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\])"
    r"|(?P<repeat>\{(?P<least>\d+)(?:,(?P<most>\d*))?\})"
    r"|(?P<wide>\.|\\[DWSC])"
    r"|(?P<open>\()|(?P<close>\))"
    r"|(?P<plain>\\x\{[^}]*\}|\\.|.)",
    re.DOTALL,
)

_IS_ASCII = re.compile(r"(?:[!-Z^-~ ]|\[(?!:\^)|\]|\\[^xWDSpP])*", re.ASCII)


def compile_work(pattern: str) -> int:
    """Return an upper bound of the work of compiling the pattern, estimated from its text."""
    if "\\Q" in pattern:  # the text after \Q is literal, but reads like a pattern
        return MOST_COMPILE_WORK
    sums, last, wide = [_ANY_PATTERN], 0, 0
    """Work of each open group, and of the item that a repetition would repeat."""
    for token in _TOKEN.finditer(pattern):
        kind = token.lastgroup
        if kind == "repeat":
            times = max(int(token["most"] or 0), int(token["least"]), 1)
            sums[-1] += last * (times - 1)
            last *= times
        elif kind == "open":
            sums.append(_PLAIN)
            last = 0
        elif kind == "close":
            last = sums.pop() + _PLAIN if len(sums) > 1 else 0
            sums[-1] += last
        else:
            last = _atom_work(kind or "", token[0])
            wide += kind in ("wide", "negated")
            sums[-1] += last
    return min(sum(sums) + wide * wide // _WIDE_PAIRS, MOST_COMPILE_WORK)


def _atom_work(kind: str, text: str) -> int:
    match kind:
        case "unicode":
            return _NO_UNICODE if text[1] == "P" or "^" in text else _UNICODE
        case "set" | "negated":
            negated = kind == "negated"
            member = _ASCII_MEMBER if not negated and _IS_ASCII.fullmatch(text) else _MEMBER
            each = _NO_UNICODE if negated else _UNICODE
            unicode = text.count("\\p") * each + text.count("\\P") * _NO_UNICODE
            return _CLASS + negated * _WIDE + len(text) * member + unicode
        case "wide":
            return _WIDE
    return _PLAIN


# -- searches --------------------------------------------------------------------------------------------------


def encoded(text: str, meter: Meter) -> bytes:
    """Encode the text for RE2."""
    meter.keep(len(text), "a regular expression")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise _half_a_character() from None


def search_work(compiled: Any, length: int) -> int:
    """Return the units of work of one search of this many bytes."""
    return int(length * compiled.programsize // STEPS)


def charge_search(compiled: Any, length: int, meter: Meter) -> None:
    """Charge one search of this many bytes."""
    meter.work(_CALL + search_work(compiled, length))


def pattern_found(pattern: str, text: str, host: Host) -> bool:
    """Return whether the pattern occurs anywhere in the text."""
    compiled = compile_pattern(pattern, host.meter, captures=False)
    data = encoded(text, host.meter)
    charge_search(compiled, len(data), host.meter)
    return compiled.search(data) is not None


def first_match(pattern: str, text: str, host: Host) -> list[str | None] | None:
    """Return the first match and its groups, or None."""
    meter = host.meter
    compiled = compile_pattern(pattern, meter)
    data = encoded(text, meter)
    charge_search(compiled, len(data), meter)
    found = compiled.search(data)
    if found is None:
        return None
    spans = [found.span(group) for group in range(compiled.groups + 1)]
    meter.fields(len(spans), "match()")
    meter.keep(sum([end - start for start, end in spans]), "match()")
    return [None if start < 0 else data[start:end].decode("utf-8") for start, end in spans]


MAX_REFERENCES = 1_000
"""Maximum number of group references in a replacement."""
_SHOWN = 100
_PER_MATCH = 24
"""Units of work of one match, in addition to its search."""
_RESCANNED = 512
"""Bytes per unit of work where each match may have to read the rest of the text."""

_REFERENCE = re.compile(r"(\\[0-7]{3})|\\([1-9][0-9]?)|\\g<(\w+)>|(\\.?)", re.DOTALL)
_STOPS = re.compile(r"(?:\\.|\[\^?(?:\\.|[^\]\\])+\]|[^\\\[\](){}*+?|^$])[*+]|[^*+{]*", re.DOTALL)
"""Patterns whose search never reads beyond the match.

They are one repeated character, or have no unbounded repetition.
"""

_Part: TypeAlias = bytes | int
"""Text, or the number of a group."""


def replace_matches(host: Host, text: str, pattern: str, replacement: str) -> str:
    """Replace matches. ``\\1`` in the replacement is the first group, ``\\g<name>`` the group of that name."""
    meter = host.meter
    compiled = compile_pattern(pattern, meter)
    data = encoded(text, meter)
    parts = _parts(compiled, replacement, meter)
    pieces: list[bytes] = []
    end = size = 0
    for found in _matches(compiled, data, meter, reads_on=_STOPS.fullmatch(pattern) is None):
        filled = [part if type(part) is bytes else found.group(part) or b"" for part in parts]
        size += found.start() - end + sum(map(len, filled))
        _check_size(meter, size, len(parts))
        pieces.append(data[end : found.start()])
        pieces.extend(filled)
        end = found.end()
    meter.allocate(size + len(data) - end, "replaceMatches()")
    pieces.append(data[end:])
    return meter.made(b"".join(pieces).decode("utf-8"), "replaceMatches()")


def _check_size(meter: Meter, size: int, parts: int) -> None:
    if size > meter.limits.result_bytes:
        meter.allocate(size, "replaceMatches()")
    meter.keep((parts + 1) * BYTES_PER_OBJECT, "replaceMatches()")


def _matches(compiled: Any, data: bytes, meter: Meter, *, reads_on: bool) -> Iterator[Any]:
    """Yield the matches in order; after an empty match the search continues at the next character."""
    charge_search(compiled, len(data), meter)
    position = 0
    while (found := compiled.search(data, position)) is not None:
        rest = len(data) - position
        meter.work(_PER_MATCH + (rest // _RESCANNED if reads_on else 0))
        yield found
        if position == len(data):
            return
        if found.end() == position:
            position += 1
            while position < len(data) and data[position] & 0xC0 == 0x80:
                position += 1
        else:
            position = found.end()


def _parts(compiled: Any, replacement: str, meter: Meter) -> list[_Part]:
    """Split the replacement into text and group references."""
    meter.search(len(replacement))
    if "\\" not in replacement:
        return [encoded(replacement, meter)]
    if replacement.count("\\") > MAX_REFERENCES:
        raise wrong_argument(
            f"replaceMatches(): the replacement holds more than {MAX_REFERENCES:,} backslashes"
        )
    parts: list[_Part] = []
    end = 0
    for found in _REFERENCE.finditer(replacement):
        if found.group(2) is None and found.group(3) is None:
            continue  # an escape, which stays in the surrounding text
        written = _unescaped(replacement[end : found.start()], replacement)
        parts += [encoded(written, meter), _group(compiled, found, replacement)]
        end = found.end()
    parts.append(encoded(_unescaped(replacement[end:], replacement), meter))
    return parts


def _unescaped(text: str, replacement: str) -> str:
    if "\\" not in text:
        return text
    try:
        return text.encode("latin-1", "backslashreplace").decode("unicode_escape")
    except UnicodeError:
        raise _bad(replacement) from None


def _group(compiled: Any, found: re.Match[str], replacement: str) -> int:
    name = found.group(2) or found.group(3)
    number = int(name) if name.isdecimal() and len(name) < 5 else compiled.groupindex.get(name, -1)
    if not 0 <= number <= compiled.groups:
        raise _bad(replacement)
    return int(number)


def _bad(replacement: str) -> ScriptThrow:
    shown = replacement if len(replacement) <= _SHOWN else f"{replacement[:_SHOWN]}…"
    return wrong_argument(f"replaceMatches(): bad replacement '{shown}'")
