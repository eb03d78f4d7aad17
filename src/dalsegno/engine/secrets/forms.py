"""The shapes in which a value may turn up again: as it is, in URLs, in JSON, in HTML, in base64, in hexadecimal.

Shapes become one expression for RE2, which looks for all of them in a single pass, in linear time. A character may be
written in any of its ways, each by itself: whoever mixes them (as URLs do) is found as well. Base64 of something that
holds the value in another way than as it is cannot be written down like this; `base64_runs` is for that.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

import re2

from dalsegno.engine.secrets.credentials import SHORTEST

_LETTERS = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_ESCAPABLE = frozenset("\"'\\/`$")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;"}
_BASE64_TWINS = {"+": "-", "/": "_"}
_ARMOUR = "-----"
"""Begins the first and the last line of a PEM file, which are no secret."""
_LONG_LINE = 16
_LONG = 512


def shapes(value: str) -> Iterator[str]:
    """Expressions for a value; nothing for one that is too short to be looked for."""
    if len(value) < SHORTEST:
        return
    for text in (value, *_lines(value)):
        yield text.encode().hex()
        if len(value) > _LONG:
            yield from map(re2.escape, (*_spellings(text), *_base64(text.encode())))
            continue
        yield _tolerant(text)
        for encoded in _base64(text.encode()):
            yield _tolerant(encoded, _BASE64_TWINS)


def _spellings(text: str) -> set[str]:
    """How all of it may be written in one way: enough for long values, for which anything more would take long."""
    in_address = {quote(text, safe=""), quote(text), quote_plus(text)}
    in_json = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]}
    return {text, html.escape(text), repr(text)[1:-1], *in_address, *in_json}


def _lines(value: str) -> list[str]:
    """The lines of a key file may be handed on one by one."""
    lines = value.splitlines()
    if len(lines) < 2:
        return []
    return [line for line in lines if len(line) >= _LONG_LINE and not line.startswith(_ARMOUR)]


def _base64(raw: bytes) -> Iterator[str]:
    """In the middle of something longer a value begins at one of three places of a group, which gives three texts.
    Characters that also depend on its neighbours are left out."""
    for before, skipped in ((0, 0), (1, 2), (2, 3)):
        whole = (before + len(raw)) * 8 // 6
        yield base64.b64encode(bytes(before) + raw).decode()[skipped:whole]


def _tolerant(text: str, twins: dict[str, str] | None = None) -> str:
    return "".join(_any_of(_ways(sign, twins or {})) for sign in text)


def _any_of(ways: list[str]) -> str:
    return ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"


def _ways(sign: str, twins: dict[str, str]) -> list[str]:
    ways = [re2.escape(sign)]
    if sign in _ESCAPABLE:
        ways[0] = r"\\*" + ways[0]
    if sign in _LETTERS:
        ways.append(r"\\+" + _LETTERS[sign])
    if sign in _ENTITIES:
        ways.append(_ENTITIES[sign])
    if sign in twins:
        ways.append(re2.escape(twins[sign]))
    if sign == " ":
        ways.append(r"\+")
    octets = sign.encode()
    ways.append("".join(f"%(?:25)*{octet:02x}" for octet in octets))
    units = sign.encode("utf-16-be")
    ways.append("".join(rf"\\+u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2)))
    if not sign.isalnum() or not sign.isascii():
        ways.append("".join(rf"\\+x{octet:02x}" for octet in octets))
        ways.append(f"&#0*{ord(sign)};")
        ways.append(f"&#x0*{ord(sign):x};")
    return ways
