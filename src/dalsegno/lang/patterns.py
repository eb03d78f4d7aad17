"""Regular expressions of users: always RE2, whose time is linear in the text, and in the size of the pattern.

A match may cost as many steps for each byte of the text as the compiled pattern has instructions, so that product is
what is charged. Compiled patterns are kept, but only a few: each may take as much memory as `MAX_MEMORY` says.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import re2

from dalsegno.lang.errors import ScriptThrow, wrong_argument
from dalsegno.lang.limits import Meter
from dalsegno.lang.values import Host

MAX_PATTERN = 1_000
MAX_MEMORY = 2 * 1024 * 1024
"""Bytes that one compiled pattern and its cache of states may take."""
MAX_COMPILED = 32
"""Compiled patterns that are kept."""
STEPS = 96
"""Steps of the pattern's machine that are one unit of work."""
_CALL = 8
"""Units of work of a search, however short."""
_REFUSAL = 20_000
"""Units of work of a pattern that cannot be compiled: finding that out may take as long as the largest that can."""


def _options(never_capture: bool) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_MEMORY
    options.never_capture = never_capture
    return options


_CAPTURING, _TESTING = _options(False), _options(True)
_compiled: OrderedDict[tuple[str, bool], Any] = OrderedDict()
"""By pattern and whether it captures; used last comes last."""


def compile_pattern(pattern: str, meter: Meter, *, captures: bool = True) -> Any:
    """The compiled pattern; a script error if it is too long or RE2 refuses it."""
    if len(pattern) > MAX_PATTERN:
        raise wrong_argument(f"the pattern is longer than {MAX_PATTERN} characters")
    key = (pattern, captures)
    known = _compiled.pop(key, None)
    if known is None:
        known = _compile(pattern, meter, _CAPTURING if captures else _TESTING)
    _compiled[key] = known
    while len(_compiled) > MAX_COMPILED:
        _compiled.popitem(last=False)
    return known


def _compile(pattern: str, meter: Meter, options: Any) -> Any:
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as problem:
        meter.work(_REFUSAL)
        reason = problem.args[0] if problem.args else "unknown"
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise wrong_argument(f"bad regular expression '{pattern}': {text}") from None
    except UnicodeEncodeError:
        raise _half_a_character() from None
    finally:
        re2.purge()  # it would keep 128 of them, whatever their size
    meter.work(compiled.programsize)
    return compiled


def _half_a_character() -> ScriptThrow:
    return wrong_argument("the text or the pattern holds half a surrogate pair, which is no character")


def encoded(text: str, meter: Meter) -> bytes:
    """As RE2 reads it."""
    meter.keep(len(text), "a regular expression")
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise _half_a_character() from None


def charge_search(compiled: Any, length: int, meter: Meter) -> None:
    """For one search of so many bytes."""
    meter.work(_CALL + length * compiled.programsize // STEPS)


def pattern_found(pattern: str, text: str, host: Host) -> bool:
    """Whether the pattern occurs anywhere in the text."""
    compiled = compile_pattern(pattern, host.meter, captures=False)
    data = encoded(text, host.meter)
    charge_search(compiled, len(data), host.meter)
    return compiled.search(data) is not None


def first_match(pattern: str, text: str, host: Host) -> list[str | None] | None:
    """The first match and its groups, or None."""
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
