"""Looks for markers in anything, independently of how redaction looks for them."""

from __future__ import annotations

import base64
import binascii
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote_to_bytes

_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{12,}")
_HEX = re.compile(rb"(?:[0-9a-fA-F]{2}){8,}")
_ESCAPE = re.compile(rb"\\+u([0-9a-fA-F]{4})")
_BINARY = re.compile(r"X'([0-9A-Fa-f]*)'")


def traces(text: str | bytes, marker: bytes, depth: int = 2) -> list[bytes]:
    """What stands around the marker, in whichever wrapping it is found first; nothing if it is nowhere."""
    raw = text.encode(errors="replace") if isinstance(text, str) else text
    at = raw.lower().find(marker.lower())
    if at >= 0:
        return [raw[max(0, at - 40) : at + 60]]
    if depth == 0:
        return []
    return next((found for inner in _unwrapped(raw) if (found := traces(inner, marker, depth - 1))), [])


def _unwrapped(raw: bytes) -> Iterator[bytes]:
    if b"%" in raw:
        yield unquote_to_bytes(raw)
    if b"\\" in raw:
        yield re.sub(
            rb"\\+", b"", _ESCAPE.sub(lambda hit: chr(int(hit[1], 16)).encode(errors="replace"), raw)
        )
    for run in set(_BASE64.findall(raw)):
        text = run.translate(bytes.maketrans(b"-_", b"+/"))
        for skipped in range(4):
            part = text[skipped:]
            yield base64.b64decode(part[: len(part) // 4 * 4])
    for run in set(_HEX.findall(raw)):
        yield binascii.unhexlify(run)


def dump(path: Path) -> tuple[str, list[bytes]]:
    """Everything in a database, as ``.dump`` writes it: its text, and the binary values in it."""
    with sqlite3.connect(path) as connection:
        text = "\n".join(connection.iterdump())
    blobs = [bytes.fromhex(written) for written in _BINARY.findall(text)]
    return _BINARY.sub("X''", text), blobs
