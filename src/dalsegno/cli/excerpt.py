"""The lines around the one where a program stands."""

from __future__ import annotations

from rich.text import Text

from dalsegno.cli.output import Signs
from dalsegno.cli.source_text import SourceText


def excerpt(
    source: SourceText, line: int, signs: Signs, *, around: int = 2, style: str = "bold"
) -> list[Text]:
    """Numbered lines, the one that is meant marked; nothing if the text does not have it."""
    rows = _dedented(source.around(line, around, around))
    digits = max((len(str(number)) for number, _ in rows), default=0)
    return [_row(number, text, number == line, digits, signs, style) for number, text in rows]


def _row(number: int, text: str, here: bool, digits: int, signs: Signs, style: str) -> Text:
    mark = signs.here if here else " " * len(signs.here)
    return Text.assemble(
        (f"  {mark} ", "bold cyan" if style == "bold" else style),
        (f"{number:>{digits}} {signs.gutter} ", "" if here else "dim"),
        (text, style if here else "dim"),
        no_wrap=True,
        overflow="ellipsis",
    )


def _dedented(rows: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Without the spaces that all lines share: the inside of a function need not begin in the middle of the screen."""
    indents = [len(text) - len(text.lstrip()) for _, text in rows if text.strip()]
    shared = min(indents, default=0)
    return [(number, text[shared:]) for number, text in rows]
