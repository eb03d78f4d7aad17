"""Drawings as SVG: boxes, arrows and texts with colours that follow the reader's light or dark setting."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Point = tuple[float, float]

LIGHT = {
    "paper": "#ffffff", "ink": "#1f2430", "faint": "#5b6472", "line": "#7b8594", "band": "#f3f4f7",
    "shell": "#dbe7ff", "pure": "#d5f2e3", "port": "#fdebc8", "plain": "#e8eaee", "end": "#f6dede",
}  # fmt: skip
DARK = {
    "paper": "#14161c", "ink": "#e6e8ee", "faint": "#a4adbb", "line": "#8f99a8", "band": "#1c2029",
    "shell": "#24375f", "pure": "#1c4a38", "port": "#57431a", "plain": "#2e343f", "end": "#552f33",
}  # fmt: skip
FILLS = ("paper", "band", "shell", "pure", "port", "plain", "end")

WIDE, NARROW = 6.9, 6.2
"""Mean width of a character of a title, and of a note, in pixels."""


def style() -> str:
    """The rules for light readers, and those that replace them for dark ones."""
    return (
        'text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif }\n'
        ".title { font-size: 13px; font-weight: 600 } .head { font-size: 16px; font-weight: 600 }\n"
        ".arrow { fill: none; stroke-width: 1.4 } .box { stroke-width: 1 } .dashed { stroke-dasharray: 4 4 }\n"
        f"{_colours(LIGHT)}\n@media (prefers-color-scheme: dark) {{\n{_colours(DARK)}\n}}"
    )


def _colours(colours: dict[str, str]) -> str:
    rules = [f".{name} {{ fill: {colours[name]} }}" for name in FILLS]
    rules += [f".ink {{ fill: {colours['ink']} }}", f".faint {{ fill: {colours['faint']} }}"]
    rules += [f".arrow, .box {{ stroke: {colours['line']} }}", f".tip {{ fill: {colours['line']} }}"]
    return "\n".join(rules)


class Drawing:
    """Shapes in the order in which they are drawn, later ones above earlier ones."""

    def __init__(self, width: float, height: float, label: str) -> None:
        self.width, self.height, self.label = width, height, label
        self._shapes: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, fill: str, *, corner: float = 6) -> None:
        self._shapes.append(
            f'<rect class="box {fill}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{corner:g}"/>'
        )

    def text(self, x: float, y: float, words: str, kind: str = "faint", anchor: str = "middle") -> None:
        self._shapes.append(
            f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words, quote=False)}</text>'
        )

    def note(self, x: float, y: float, words: str) -> None:
        """A text on a ground of its own, so that a line behind it does not cross it."""
        width = len(words) * NARROW + 8
        self._shapes.append(
            f'<rect class="paper" x="{x - width / 2:g}" y="{y - 12:g}" width="{width:g}" height="16"/>'
        )
        self.text(x, y, words)

    def labelled(
        self, x: float, y: float, width: float, height: float, fill: str, lines: Sequence[str]
    ) -> None:
        """A box with a title, and smaller lines below it."""
        self.box(x, y, width, height, fill)
        top = y + height / 2 - (len(lines) - 1) * 8 + 4.5
        for number, line in enumerate(lines):
            self.text(x + width / 2, top + 16 * number, line, "title ink" if number == 0 else "faint")

    def arrow(self, points: Sequence[Point]) -> None:
        """Straight lines through the points, with a tip at the last one."""
        path = "M" + " L".join(f"{x:g} {y:g}" for x, y in points)
        self._tipped(path, points[-2], points[-1])

    def line(self, start: Point, end: Point) -> None:
        """A dashed line."""
        (x, y), (u, v) = start, end
        self._shapes.append(f'<path class="arrow dashed" d="M{x:g} {y:g} L{u:g} {v:g}"/>')

    def arc(self, start: Point, end: Point, top: float) -> None:
        """An arrow that rises from its start to a height, and comes down at its end."""
        (x, y), (u, v) = start, end
        turn = 12 if u > x else -12
        path = (
            f"M{x:g} {y:g} V{top + 12:g} Q{x:g} {top:g} {x + turn:g} {top:g} "
            f"H{u - turn:g} Q{u:g} {top:g} {u:g} {top + 12:g} V{v:g}"
        )
        self._tipped(path, (u, top), end)

    def _tipped(self, path: str, before: Point, end: Point) -> None:
        self._shapes.append(f'<path class="arrow" d="{path}"/>')
        self._shapes.append(f'<path class="tip" d="{_tip(before, end)}"/>')

    def svg(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" role="img" '
            f'aria-label="{escape(self.label)}">'
        )
        ground = f'<rect class="paper" width="{self.width:g}" height="{self.height:g}" rx="8"/>'
        return "\n".join([head, f"<style>\n{style()}\n</style>", ground, *self._shapes, "</svg>\n"])


def _tip(before: Point, end: Point) -> str:
    (x, y), (u, v) = before, end
    length = ((u - x) ** 2 + (v - y) ** 2) ** 0.5
    across, along = (u - x) / length, (v - y) / length
    left = (u - 8 * across - 4 * along, v - 8 * along + 4 * across)
    right = (u - 8 * across + 4 * along, v - 8 * along - 4 * across)
    return f"M{u:g} {v:g} L{left[0]:.1f} {left[1]:.1f} L{right[0]:.1f} {right[1]:.1f} Z"
