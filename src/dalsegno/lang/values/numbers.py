"""Numbers as text: literals of the language, conversion from and to strings.

A number is an ``int`` if it is integral and fits 64 bits, else a ``float``; ``as_integer`` enforces that rule.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

_PREFIXED = re.compile(r"0[xX][0-9a-fA-F]+(?:_[0-9a-fA-F]+)*|0[bB][01]+(?:_[01]+)*")
_DECIMAL = re.compile(r"(?:\d+(?:_\d+)*)?(?:\.\d+(?:_\d+)*)?(?:[eE][+-]?\d+)?")
_NUMERIC = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")

EXACT = 2**53
WORD = 2**63
MAX_DIGITS = 400
"""Longer digit strings are refused before conversion, whose cost grows with the square of the length."""


def as_integer(number: float) -> int | float:
    """Convert integral floats that an integer represents exactly to integers; minus zero stays a float."""
    if (
        -EXACT <= number <= EXACT
        and number == (whole := int(number))
        and (whole or math.copysign(1, number) > 0)
    ):
        return whole
    return number


def within_word(number: int) -> int | float:
    """Convert integers beyond 64 bits to floats: integer arithmetic is exact for 64 bits only."""
    if -WORD <= number < WORD:
        return number
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def number_literal(text: str) -> int | float:
    """Return the value of a numeral in source text; `ValueError` says what is wrong with it."""
    if len(text) > MAX_DIGITS:
        raise ValueError(f"the number has more than {MAX_DIGITS} characters")
    if _PREFIXED.fullmatch(text):
        return within_word(int(text.replace("_", ""), 0))
    if not _DECIMAL.fullmatch(text):
        raise ValueError(f"'{text}' is not a number")
    digits = text.replace("_", "")
    number = within_word(int(digits)) if digits.isdecimal() else as_integer(float(digits))
    if math.isinf(number):
        raise ValueError(f"'{text}' is too large for a number")
    return number


def parse_number(text: str) -> int | float | None:
    """Return the number that a string spells (decimal, surrounding space allowed), or None."""
    stripped = text.strip()
    if len(stripped) > MAX_DIGITS or not stripped.isascii():
        return None
    if _PREFIXED.fullmatch(stripped):
        return within_word(int(stripped.replace("_", ""), 0))
    if not _NUMERIC.fullmatch(stripped):
        return None
    if stripped.lstrip("+-").isdecimal():
        return int(stripped)
    return as_integer(float(stripped))


def number_text(number: int | float) -> str:
    """Return decimal notation without exponent or trailing ``.0``."""
    if isinstance(number, int):
        return str(number) if number.bit_length() < 4096 else number_text(within_word(number))
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else ("Infinity" if number > 0 else "-Infinity")
    if number == int(number):
        return str(int(number)) if abs(number) < 1e21 else format(Decimal(repr(number)), "f")
    text = repr(number)
    return format(Decimal(text), "f") if "e" in text else text
