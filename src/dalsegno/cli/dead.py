"""Dead letters as data and as a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from dalsegno.cli.output import iso, stdout
from dalsegno.engine.dead import DeadLetter


def as_object(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "kind": letter.kind,
        "execution": letter.execution,
        "workflow": letter.workflow,
        "reason": letter.reason,
        "code": letter.code,
        "since": iso(letter.since),
        "tries": letter.tries,
    }


def print_letters(letters: Sequence[DeadLetter]) -> None:
    """Each with its reason below: reasons are long, and what one wants to read."""
    console = stdout()
    if not letters:
        console.print("nothing is dead")
        return
    for letter in letters:
        console.print(Text(letter.id, "bold"), soft_wrap=True)
        about = f"  {letter.workflow or 'unknown workflow'}, since {iso(letter.since)}"
        console.print(Text(f"{about}, {letter.code}" if letter.code else about, "dim"), soft_wrap=True)
        console.print(Text(f"  {letter.reason}"), soft_wrap=True)
