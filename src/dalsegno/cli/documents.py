"""Documents, payloads, tags and durations from the command line, and the findings of documents with their lines.

A document is a graph (JSON or YAML), a script (``.flow``), or one of the Python workflows that a file defines. Invalid
input raises Refusal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dalsegno.cli.errors import Refusal

STDIN = "-"
SCRIPT = ".flow"
PayloadOption = Literal["input", "context", "payload", "data", "output"]
"""Options that take JSON."""
EXAMPLES: dict[PayloadOption, str] = {
    "input": '{"name": "Ada"}',
    "context": '{"node": {"price": 3}}',
    "payload": '{"approved": true}',
    "data": '{"amount": 3}',
    "output": '{"price": 3}',
}


@dataclass(frozen=True, slots=True)
class Document:
    """A workflow document as it was read. ``name`` is its name unless it contains one."""

    file: str
    text: bytes
    name: str

    @property
    def is_script(self) -> bool:
        return self.file.endswith(SCRIPT)


def read_document(file: str) -> Document:
    if file == STDIN:
        return Document("stdin", sys.stdin.buffer.read(), "stdin")
    return Document(file, _read(file, "document"), Path(file).stem)


def read_payload(given: str | None, what: PayloadOption = "input") -> Any:
    """Read ``JSON``, ``@file`` or ``-`` (stdin). Return None if the option is not given."""
    if given is None:
        return None
    if given == STDIN:
        return _json(sys.stdin.buffer.read(), f"the {what} on stdin", what)
    if given.startswith("@"):
        return _json(_read(given[1:], what), f"the {what} in {given[1:]}", what)
    return _json(given.encode(errors="surrogateescape"), f"the {what}", what)


def read_tags(given: Sequence[str] | None) -> dict[str, str]:
    tags = {}
    for each in given or ():
        key, sign, text = each.partition("=")
        if not sign or not key:
            raise Refusal(f"the tag {each!r} is not KEY=VALUE", "Write it like --tag customer=acme.")
        tags[key] = text
    return tags


def read_seconds(given: str | None, what: str = "timeout") -> float | None:
    if given is None:
        return None
    from dalsegno.lang.durations import BadDuration, parse_duration  # noqa: PLC0415 - it brings the languages

    try:
        return parse_duration(given)
    except BadDuration as error:
        raise Refusal(f"the {what} {given!r} {error}") from None


def _read(file: str, what: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except FileNotFoundError:
        raise Refusal(f"there is no file {file}", f"Give the path of the {what}, or - for stdin.") from None
    except IsADirectoryError:
        raise Refusal(f"{file} is a directory", f"Give the path of the {what}'s file.") from None
    except OSError as error:
        raise Refusal(f"{file} cannot be read: {error.strerror or error}") from None


def _json(text: bytes, what: str, option: PayloadOption) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise Refusal(
            f"{what} is not JSON: {error.msg} ({place})",
            f"Quote it for the shell: --{option} '{EXAMPLES[option]}'; or use @FILE.",
        ) from None
    except UnicodeDecodeError:
        raise Refusal(f"{what} is not valid UTF-8") from None
    except (RecursionError, ValueError) as error:
        raise Refusal(f"{what} cannot be used: {error}") from None
