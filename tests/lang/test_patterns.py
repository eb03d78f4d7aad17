"""Patterns are charged before they are compiled where that holds up others, and are compiled once."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import re2

from dalsegno.lang.errors import ScriptThrow
from dalsegno.lang.runtime.limits import DEFAULT_LIMITS, Heavy, Limits, Meter
from dalsegno.lang.values import regex
from dalsegno.lang.values.regex import compile_pattern, compile_work

LIGHT = Limits(instructions=10_000, is_light=True)
UNIT = 1e-6
"""Seconds that one unit of work takes at most; about a quarter of it on an idle machine."""
COSTLY = (
    r"[\pL\pN]{100}", r"\pL{100}", r"\pL*" * 240, r"\PL" * 300, r"\p{^L}{90}", r"[\p{^L}]{100}", r"[^\pL]{100}",
    r"(?i)[^\pL]" * 90, r"[^\pL\pM\pN]" * 70, r"(\pL|\pN|\pS)*" * 60, r"(?:(?:\pL){9}){9}", r"(\pL?){100}",
    r"(?i)\PL" * 100, r"\Q[\E\pL{100}]", r"[\]\pL]{50}", r"[]\pL]{50}", r"[[:alpha:]\pL]{50}", r"\\\pL{50}",
    "[ab]{0,999}" * 90, "a{999}" * 160, ".{0,999}" * 120, "." * 1000, ".{0,9}" * 150,
    "[㐀㐂㐄㐆㐈㐊㐌㐎㐐㐒㐔㐖㐘㐚]{999}", "[^é]{999}", "(?:(?:[ab]{9}){9}){9}" * 40,
)  # fmt: skip
USUAL = (
    r"^\d{4}-\d{2}-\d{2}$", "^[a-z0-9_]{3,200}$", r"^[\w.+-]+@[\w-]+\.[\w.-]+$", r"^\+?[0-9 ()-]{6,20}$",
    r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", r"^\pL+$", "^(draft|open|closed)$", "(?i)^[^<>]{0,200}$",
    r"^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}$", "^https?://[^/ ]+(/.*)?$",
)  # fmt: skip


@pytest.fixture(autouse=True)
def none_known() -> Iterator[None]:
    regex._known.clear()
    yield
    regex._known.clear()


def seconds(pattern: str) -> float:
    began = time.thread_time()
    try:
        re2.compile(pattern, regex._TESTING)
    except re2.error:
        pass
    finally:
        re2.purge()
    return time.thread_time() - began


@pytest.mark.parametrize("pattern", COSTLY)
def test_compiling_takes_no_longer_than_was_said_before(pattern: str) -> None:
    assert any(seconds(pattern) < compile_work(pattern) * UNIT for _ in range(5))


@pytest.mark.parametrize("pattern", COSTLY)
def test_a_light_step_compiles_no_costly_pattern(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regex.re2, "compile", None)
    with pytest.raises(Heavy):
        compile_pattern(pattern, Meter(LIGHT))


@pytest.mark.parametrize("pattern", USUAL)
def test_a_light_step_compiles_what_is_usual(pattern: str) -> None:
    assert compile_pattern(pattern, Meter(LIGHT)).search(b"<\n") is None


def test_a_light_step_uses_what_is_compiled_already() -> None:
    compiled = compile_pattern(r"\pL{20}", Meter(DEFAULT_LIMITS))
    assert compile_pattern(r"\pL{20}", Meter(LIGHT)) is compiled


@pytest.mark.parametrize("bad", ["(", r"\pL{1000}"])
def test_what_cannot_be_compiled_is_tried_once(bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ScriptThrow) as first:
        compile_pattern(bad, Meter(DEFAULT_LIMITS))
    monkeypatch.setattr(regex.re2, "compile", None)
    meter = Meter(DEFAULT_LIMITS)
    with pytest.raises(ScriptThrow) as second:
        compile_pattern(bad, meter)
    assert second.value.message == first.value.message
    assert meter.work_left == DEFAULT_LIMITS.instructions


def test_a_pattern_that_is_too_large_is_charged() -> None:
    meter = Meter(DEFAULT_LIMITS)
    with pytest.raises(ScriptThrow, match="too large"):
        compile_pattern(r"\pL{1000}", meter)
    assert meter.work_left == DEFAULT_LIMITS.instructions - 200_000
