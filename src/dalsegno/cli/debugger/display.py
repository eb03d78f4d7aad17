"""A recorded turn on a terminal: what woke it, its source lines, what changed, what it asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from dalsegno.cli.output import Signs, iso, moment, several, signs_for, span
from dalsegno.cli.views.source import excerpt
from dalsegno.core.scripts.source_text import SourceText
from dalsegno.core.scripts.turn_view import (
    FrameView,
    MadePromise,
    SettledPromise,
    ShownValue,
    TurnSummary,
    TurnView,
    VariableView,
)
from dalsegno.lang.runtime.effects import display_name

LABEL = 10
"""Width of the column that says what a line is."""
MOST_ROWS = 12
"""Promises and changes shown of one turn; commands show all."""
WIDEST_PIPE = 500
"""Width of lines in a pipe: values are cut there, as on a terminal at its width."""

_MARKS = {"added": ("+", "green"), "changed": ("~", "yellow"), "dropped": ("-", "dim"), "": (" ", "")}
_LAST = {"completed": "the program returned", "failed": "the program failed", "cancelled": "it was cancelled"}


class TurnDisplay:
    """Prints turns of one execution."""

    def __init__(self, console: Console, source: SourceText | None, turns: Sequence[TurnSummary]) -> None:
        self.console = console
        self.source = source
        self.turns = turns
        self.signs: Signs = signs_for(console)

    # -- a turn -----------------------------------------------------------------------------------------------

    def turn(self, view: TurnView) -> None:
        """Print a turn in about a dozen lines."""
        self._line(self._head(view))
        self.received(view, MOST_ROWS)
        if view.line:
            self.excerpt(view.line)
        self.changes(view)
        self.asked(view, MOST_ROWS)
        self._end(view)
        if view.missing:
            self._line(Text(f"  {view.missing}", "yellow"), wrap=True)

    def _head(self, view: TurnView) -> Text:
        dot = f" {self.signs.dot} "
        before = next((one for one in self.turns if one.number == view.number - 1), None)
        parts = [f"turn {view.number} of {self.turns[-1].number}", moment(view.at)]
        if before is not None:
            parts.append(f"{span(view.at - before.at)} after the last")
        head = Text(parts[0], "bold cyan")
        head.append(dot + dot.join(parts[1:]), "dim")
        if view.checkpoint:
            head.append(f"{dot}checkpoint {view.checkpoint}", "magenta")
        return head

    def _end(self, view: TurnView) -> None:
        if view.awaits:
            self._row("then", Text(f"waits for {view.awaits}"))
        elif view.state in _LAST:
            self._row("then", Text(_LAST[view.state], "green" if view.state == "completed" else "bold red"))
        if view.output is not None:
            self._row("result", Text(value_text(view.output)))
        if view.error is not None:
            self._row("error", Text(error_text(view.error), "red"))

    def excerpt(self, line: int, around: int = 2) -> None:
        if self.source is None:
            return
        for row in excerpt(self.source, line, self.signs, around=around):
            self._line(row)

    # -- its parts --------------------------------------------------------------------------------------------

    def received(self, view: TurnView, most: int | None = None) -> None:
        """Print the outcomes that the turn received."""
        if not view.received:
            return
        for place, one in enumerate(view.received[:most]):
            self._row("received" if not place else "", self._received(one))
        self._more(view.received_count - len(view.received[:most]))

    def _received(self, one: SettledPromise) -> Text:
        if one.error is not None:
            return Text.assemble(_named(one), "  ", (error_text(one.error), "red"))
        if one.result is None:
            return Text.assemble(_named(one), "  ", ("its result is not kept", "dim"))
        if one.kind == "timer":
            return Text(_named(one))
        return Text.assemble(_named(one), "  ", value_text(one.result))

    def changes(self, view: TurnView) -> None:
        """Print the variables that the turn changed."""
        if view.is_before:
            return
        rows = [one for frame in view.functions for one in frame.variables if one.change]
        for place, one in enumerate(rows[:MOST_ROWS]):
            self._row("changed" if not place else "", self._change(one, _widest(rows[:MOST_ROWS])))
        self._more(len(rows) - MOST_ROWS)

    def _change(self, one: VariableView, wide: int) -> Text:
        sign, style = _MARKS[one.change]
        row = Text.assemble((f"{sign} ", style), (f"{one.name:<{wide}}", "bold"), "  ")
        if one.now is None:
            return row.append("not used any more", "dim")
        row.append(value_text(one.now))
        if one.before is not None:
            row.append(f"  was {value_text(one.before)}", "dim")
        return row

    def asked(self, view: TurnView, most: int | None = None) -> None:
        """Print what the turn asked for."""
        for place, one in enumerate(view.asked[:most]):
            self._row("asked" if not place else "", self._asked(one))
        self._more(view.asked_count - len(view.asked[:most]) if view.asked else 0)

    def _asked(self, one: MadePromise) -> Text:
        row = Text(_named(one))
        if one.input is not None:
            row.append(f"  {value_text(one.input)}")
        if one.due is not None:
            row.append(f"  until {moment(one.due)}", "dim")
        if one.execution:
            row.append(f"  execution {one.execution}", "dim")
        return row

    # -- commands ---------------------------------------------------------------------------------------------

    def variables(self, view: TurnView, name: str = "", place: int = 0) -> None:
        """Print the variables of a function, or one variable at length."""
        if not view.functions:
            self._note(view.missing or "there are no variables: no function of the program runs")
            return
        frame = view.functions[min(place, len(view.functions) - 1)]
        if name:
            self._one(frame, name)
            return
        rows = [one for one in frame.variables if one.now is not None]
        if not rows:
            self._note(f"{frame.function} has no variables here")
        for one in rows:
            sign, style = _MARKS[one.change]
            value = value_text(one.now) if one.now is not None else ""
            self._line(
                Text.assemble(
                    "  ", (f"{sign} ", style), (f"{one.name:<{_widest(rows)}}", "bold"), "  ", value
                )
            )

    def _one(self, frame: FrameView, name: str) -> None:
        found = next((one for one in frame.variables if one.name == name), None)
        if found is None:
            self._note(f"there is no variable '{name}' in {frame.function}")
            return
        for title, shown in (("now", found.now), ("before", found.before)):
            if shown is not None:
                self._row(title, Text(value_text(shown, indent=not shown.size)), wrap=True)
        if found.now is None:
            self._row("now", Text("not used any more", "dim"))

    def where(self, view: TurnView, place: int = 0) -> None:
        """Print the running functions, innermost first."""
        if not view.functions:
            self._note(view.missing or "no function of the program runs")
        for number, frame in enumerate(view.functions):
            here = number == place
            self._line(
                Text.assemble(
                    (f"{self.signs.here if here else ' '} ", "bold cyan"),
                    (f"#{number} ", "dim"),
                    (frame.function, "bold" if here else ""),
                    (f"  line {frame.line}  ", "dim"),
                    frame.source.strip(),
                )
            )

    def list(self, number: int, turns: Iterable[TurnSummary]) -> None:
        """Print turns, one line each."""
        for one in turns:
            here = one.number == number
            what = f"waits for {one.awaits}" if one.awaits else _LAST.get(one.state, "")
            row = Text.assemble(
                (f"{self.signs.here if here else ' '} ", "bold cyan"),
                (f"{one.number:>4}  ", "bold" if here else ""),
                (f"{moment(one.at)[11:]}  ", "dim"),
                (f"line {one.line:<4} " if one.line else " " * 10, "dim"),
                what,
            )
            if one.checkpoint:
                row.append(f"  checkpoint {one.checkpoint}", "magenta")
            self._line(row)

    # -- lines ------------------------------------------------------------------------------------------------

    def note(self, text: str, style: str = "dim") -> None:
        """Print a sentence of the debugger itself."""
        self._line(Text(text, style), wrap=True)

    _note = note

    def _row(self, label: str, text: Text, *, wrap: bool = False) -> None:
        self._line(Text.assemble((f"  {label:<{LABEL}}", "dim"), text), wrap=wrap)

    def _more(self, count: int) -> None:
        if count > 0:
            self._row("", Text(f"{self.signs.ellipsis} {count:,} more", "dim"))

    def _line(self, text: Text, *, wrap: bool = False) -> None:
        if not wrap:
            width = self.console.width if self.console.is_terminal else WIDEST_PIPE
            text.truncate(width, overflow="ellipsis")
        text.rstrip()
        self.console.print(text, soft_wrap=not (wrap and self.console.is_terminal))


def value_text(shown: ShownValue, *, indent: bool = False) -> str:
    """Return a value as JSON on one line, or indented."""
    if shown.size:
        return f"{shown.value} ... ({several(shown.size, 'byte')})"
    return json.dumps(shown.value, ensure_ascii=False, indent=2 if indent else None)


def error_text(error: dict[str, Any]) -> str:
    kind = error.get("type") or error.get("code") or "Error"
    return f"{kind}: {error.get('message', '')}".rstrip(": ")


def as_object(turn: TurnSummary | TurnView) -> dict[str, Any]:
    """Return a turn as JSON, as the HTTP API has it; times are those of this machine's zone."""
    found: dict[str, Any] = msgspec.to_builtins(turn)
    found["at"] = iso(turn.at)
    for each in found.get("asked", ()):
        each["due"] = iso(each["due"])
    return found


def _named(one: SettledPromise | MadePromise) -> str:
    if one.kind == "task":
        return f"task {display_name(one.name)}" if one.name else "task"
    return f"{one.kind} {one.name}" if one.name else one.kind


def _widest(rows: Sequence[VariableView]) -> int:
    return min(max((len(one.name) for one in rows), default=0), 24)
