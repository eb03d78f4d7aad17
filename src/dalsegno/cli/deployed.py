"""What ``deploy`` says: which version it is now, and what changed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from dalsegno.cli.deploying import Deployed
from dalsegno.cli.findings import show_findings
from dalsegno.cli.output import several, stdout
from dalsegno.engine.comparing.graphs import FieldChange, GraphChanges, PartChange
from dalsegno.engine.comparing.texts import TextChanges
from dalsegno.model.definition import DeployedTrigger

SHOWN_LINES = 200
SHOWN_CHARACTERS = 60
_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


def print_deployed(deployed: Sequence[Deployed], *, dry_run: bool = False) -> None:
    console = stdout()
    for each in deployed:
        console.print(_head(each, dry_run), soft_wrap=True)
        if each.changes is not None:
            _print_changes(console, each.changes)
        if each.alias is not None:
            console.print(_alias(each, dry_run), soft_wrap=True)
        for trigger in each.triggers:
            console.print(_trigger(trigger), soft_wrap=True)
        show_findings(console, each.file, each.warnings)
    if dry_run:
        console.print("nothing was stored", style="dim")


def _head(each: Deployed, dry_run: bool) -> Text:
    sentence, style = _sentence(each, "would be " if dry_run else "")
    return Text.assemble((each.name, "bold"), "  ", (sentence, style), "  ", (each.file, "dim"))


def _sentence(each: Deployed, would: str) -> tuple[str, str]:
    match each.status:
        case "unchanged":
            return f"unchanged: still version {each.version}", "dim"
        case "current again":
            return f"{would}version {each.version} again (rolled back from {each.previous})", "yellow"
        case "new" if each.previous is None:
            return f"{would}version {each.version} (new)", "green"
    return f"{would}version {each.version} (was {each.previous})", "green"


def _alias(each: Deployed, dry_run: bool) -> Text:
    verb = "would mean" if dry_run else "means"
    before = f" (was {each.alias_before})" if each.alias_before not in (None, each.version) else ""
    return Text.assemble("  ", (each.alias or "", "bold"), f" {verb} version {each.version}{before}")


def _trigger(trigger: DeployedTrigger) -> Text:
    style = {"added": "green", "changed": "yellow", "removed": "red"}.get(trigger.status, "dim")
    about = f"  {trigger.about}" if trigger.about else ""
    line = Text.assemble(
        "  ",
        (f"{trigger.kind} '{trigger.name}' {trigger.status}", style),
        (about, "dim" if style == "dim" else ""),
    )
    if trigger.secret is not None:
        line.append(f"\n    its secret, shown this once: {trigger.secret}")
    return line


# -- changes --------------------------------------------------------------------------------------------------


def _print_changes(console: Console, changes: GraphChanges | TextChanges) -> None:
    if not changes:
        console.print("  only the order of things changed, or how they are written", style="dim")
    elif isinstance(changes, TextChanges):
        _print_text(console, changes)
    else:
        lines = [line for part in changes.parts for line in _part_lines(part)]
        lines += [_field_line(field, "  ") for field in changes.fields]
        _print_lines(console, lines)


def _part_lines(change: PartChange) -> list[Text]:
    sign, style = _SIGNS[change.kind]
    head = Text.assemble("  ", (f"{sign} {change.part} {change.id}", style), (f"  {change.about}", "dim"))
    return [head, *(_field_line(field, "      ") for field in change.fields)]


def _field_line(change: FieldChange, indent: str) -> Text:
    sign, style = _SIGNS[change.kind]
    match change.kind:
        case "added":
            said = _short(change.after)
        case "removed":
            said = _short(change.before)
        case _:
            said = f"{_short(change.before)} -> {_short(change.after)}"
    return Text.assemble(indent, (f"{sign} {change.path}", style), f"  {said}")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[: SHOWN_CHARACTERS - 3]}..."


def _print_text(console: Console, changes: TextChanges) -> None:
    counted = f"{several(changes.added, 'line')} added, {changes.removed:,} removed"
    console.print(Text(f"  {counted}", "dim"))
    _print_lines(console, [Text(f"  {line}", _line_style(line)) for line in changes.diff[2:]])


def _line_style(line: str) -> str:
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")


def _print_lines(console: Console, lines: list[Text]) -> None:
    for line in lines[:SHOWN_LINES]:
        console.print(line, soft_wrap=True)
    if len(lines) > SHOWN_LINES:
        console.print(
            f"  ... {several(len(lines) - SHOWN_LINES, 'more line')}; --json shows all", style="dim"
        )
