"""State diagrams: live states in a row, the moves between them, and what each may end as."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from scripts.pages.svg import NARROW, WIDE, Drawing

Moves = Mapping[str, Sequence[str]]
Labels = Mapping[tuple[str, str], str]

BOX, GAP, HEIGHT = 124.0, 106.0, 44.0
EDGE = 40.0
ARC = 34.0
"""Height that an arc over the row needs for itself."""
PAIR = 9.0
"""Half the distance of two arrows between the same states."""


def draw(title: str, moves: Moves, first: str, labels: Labels | None = None) -> str:
    """Live states stand in the order of the table; those that have ended are in a frame below."""
    said = labels or {}
    live = [state for state, targets in moves.items() if targets]
    ended = [state for state, targets in moves.items() if not targets]
    arcs = sorted(
        (
            (before, after)
            for before in live
            for after in moves[before]
            if after in live and abs(live.index(before) - live.index(after)) > 1
        ),
        key=lambda move: abs(live.index(move[0]) - live.index(move[1])),
    )
    row = max(54.0, 40 + ARC * len(arcs))
    frame = row + HEIGHT + 86
    width = 2 * EDGE + len(live) * BOX + (len(live) - 1) * GAP
    drawing = Drawing(width, frame + 98, title)
    place = {state: EDGE + number * (BOX + GAP) for number, state in enumerate(live)}
    left = Counter[str]()
    for number, (before, after) in enumerate(arcs):
        top = row - 20 - ARC * number
        forward = place[after] > place[before]
        start = place[before] + (BOX / 4 if forward else BOX / 3 + 24 * left[before])
        left[before] += 1
        end = place[after] + (BOX * 3 / 4 if forward else BOX * 2 / 3)
        drawing.arc((start, row), (end, row), top)
        if (before, after) in said:
            drawing.note((start + end) / 2, top + 4, said[before, after])
    _entry(drawing, place[first], row, is_leftmost=first == live[0])
    for before, after in pairwise(live):
        _between(drawing, moves, said, place, row, before, after)
    drawing.box(EDGE / 2, frame, width - EDGE, 74, "band")
    for state in live:
        _ending(drawing, [after for after in moves[state] if after in ended], place[state], row, frame, ended)
        drawing.labelled(place[state], row, BOX, HEIGHT, "shell", [state])
    _ended(drawing, ended, width, frame)
    return drawing.svg()


def _entry(drawing: Drawing, x: float, row: float, *, is_leftmost: bool) -> None:
    """The mark of the first state: from the left where nothing is there, else from above."""
    if is_leftmost:
        drawing.arrow([(x - 26, row - 22), (x - 26, row + HEIGHT / 2), (x, row + HEIGHT / 2)])
        drawing.note(x - 14, row - 26, "new")
    else:
        drawing.arrow([(x + 24, row - 22), (x + 24, row)])
        drawing.note(x + 24, row - 26, "new")


def _between(
    drawing: Drawing,
    moves: Moves,
    said: Labels,
    place: Mapping[str, float],
    row: float,
    left: str,
    right: str,
) -> None:
    """Moves between neighbours, in either direction or both."""
    middle, start, end = row + HEIGHT / 2, place[left] + BOX, place[right]
    both = right in moves[left] and left in moves[right]
    if right in moves[left]:
        y = middle - (PAIR if both else 0)
        drawing.arrow([(start, y), (end, y)])
        drawing.text((start + end) / 2 - 3, y - 6, said.get((left, right), ""))
    if left in moves[right]:
        y = middle + (PAIR if both else 0)
        drawing.arrow([(end, y), (start, y)])
        for number, words in enumerate(said.get((right, left), "").split("\n")):
            drawing.text((start + end) / 2 + 3, y + 15 + 14 * number, words)


def _ending(
    drawing: Drawing, targets: Sequence[str], x: float, row: float, frame: float, ended: Sequence[str]
) -> None:
    """One arrow for all the ways in which a state may end."""
    if not targets:
        return
    drawing.arrow([(x + BOX / 2, row + HEIGHT), (x + BOX / 2, frame)])
    lines = ["any of these"] if len(targets) == len(ended) and len(ended) > 1 else _either(targets)
    for number, words in enumerate(lines):
        drawing.note(x + BOX / 2, frame - 44 + 16 * number - 8 * (len(lines) - 1) + 8, words)


def _either(targets: Sequence[str]) -> list[str]:
    """Two states a line: ``A, B`` and below it ``or C``."""
    if len(targets) == 1:
        return [targets[0]]
    *others, last = targets
    return [", ".join(others), f"or {last}"]


def _ended(drawing: Drawing, ended: Sequence[str], width: float, frame: float) -> None:
    each = max(len(state) for state in ended) * WIDE + 40
    left = (width - len(ended) * each - (len(ended) - 1) * 16) / 2
    for number, state in enumerate(ended):
        drawing.labelled(left + number * (each + 16), frame + 15, each, HEIGHT, "end", [state])
    if left - EDGE / 2 > len("ended") * NARROW + 12:
        drawing.text(EDGE / 2 + 12, frame + 41, "ended", anchor="start")
