"""What is asked for with a rerun: nodes of a graph, or a turn with variables and answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dalsegno.cli.errors import Refusal
from dalsegno.core.values import decode_value
from dalsegno.engine.journal.branches import TurnAsked


def read_turn(
    nodes: Sequence[str] | None,
    at: str | None,
    variables: Sequence[str] | None,
    answers: Sequence[str] | None,
) -> TurnAsked | None:
    """Return the turn to begin at; None for a rerun from nodes."""
    if (not nodes) == (at is None):
        raise Refusal(
            "say where to begin: at nodes of a graph, or at a turn of a script or Python workflow",
            "Write dalsegno rerun EXECUTION NODE …, or dalsegno rerun EXECUTION --at TURN.",
        )
    if at is None:
        if variables or answers:
            raise Refusal("--set and --answer belong to a turn", "Add --at TURN.")
        return None
    turn = int(at) if at.isascii() and at.isdecimal() else at
    return TurnAsked(turn, _assigned("--set", variables), _assigned("--answer", answers))


def _assigned(option: str, given: Sequence[str] | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise Refusal(f"{option} {text!r} is no NAME=JSON", f"""Write it like {option} 'total=12'.""")
        if name in found:
            raise Refusal(f"{option} gives '{name}' twice", "Give it once.")
        try:
            found[name] = decode_value(value.encode(errors="surrogateescape"))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Refusal(
                f"the value of {option} {name} is not JSON: {error}",
                f"Write texts in quotes: {option} '{name}=\"a\"'.",
            ) from None
    return found
