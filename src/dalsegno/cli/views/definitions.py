"""Node types, checked files and deployed versions on a terminal.

What ``nodes``, ``validate`` and ``deploy`` print: types with their parameters, findings, versions and changes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dalsegno.admin.triggers import refused_by_deploy
from dalsegno.app import App
from dalsegno.cli.deploy import Deployed, check_tasks, compile_document
from dalsegno.cli.documents import SCRIPT, Document, read_document
from dalsegno.cli.errors import InvalidDocument, Refusal, UnfitFunction, Unknown
from dalsegno.cli.modules import PYTHON, workflows_in
from dalsegno.cli.output import print_table, several, signs_for, stdout
from dalsegno.cli.programs import check_script, located, show_findings
from dalsegno.cli.target.stores import server_of
from dalsegno.cli.target.target import make_app, opened, own_program
from dalsegno.cli.views.moves import as_object as moves_as_object
from dalsegno.cli.views.moves import print_report
from dalsegno.engine.operations.diff import FieldChange, GraphChanges, PartChange, TextChanges
from dalsegno.engine.operations.unfinished_versions import LackingVersion, lacking_versions
from dalsegno.lang.python import UnsupportedPython
from dalsegno.model.definition import DeployedTrigger
from dalsegno.model.suggestion import did_you_mean
from dalsegno.nodes.registry import NodeRegistry
from dalsegno.ports.node import NodeType

if TYPE_CHECKING:
    from dalsegno.cli.run.live_moves import LiveMoves


def find_type(registry: NodeRegistry, name: str, given: str | None = None) -> NodeType:
    """Find a node type by name or alias. ``given``: the application whose types are known too, for the message."""
    if registry.find(name) is None:
        names = [each for known in registry.types() for each in (known, *registry.get(known).spec.aliases)]
        raise Unknown(
            f"there is no node type '{name}'{did_you_mean(name, names)}",
            "`dalsegno nodes` lists them all; those of an application need --app."
            if given is None
            else f"`dalsegno nodes --app {given}` lists all that are known with {given}.",
        )
    return registry.get(name)


def describe(node_type: NodeType) -> dict[str, Any]:
    spec = node_type.spec
    return {
        "type": spec.type,
        "aliases": list(spec.aliases),
        "description": node_type.description,
        "parameters": dict(spec.parameter_schema),
        "output": dict(node_type.output_schema),
    }


def print_catalogue(entries: Sequence[Mapping[str, Any]]) -> None:
    console = stdout()
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("type", style="bold", no_wrap=True)
    table.add_column("what it does, and its parameters", overflow="fold")
    for entry in entries:
        names = ", ".join(entry["parameters"].get("properties", {}))
        table.add_row(
            Text(entry["type"]), Text.assemble(_first_line(entry), ("\n" + names if names else "", "dim"))
        )
    print_table(console, table)
    console.print("\n`dalsegno nodes TYPE` shows more about one of them", style="dim", markup=False)


def print_type(entry: Mapping[str, Any]) -> None:
    console = stdout()
    also = f"  [dim]also: {escape(', '.join(entry['aliases']))}[/]" if entry["aliases"] else ""
    console.print(f"[bold]{escape(entry['type'])}[/]{also}")
    console.print(Text(entry["description"]))
    schema = entry["parameters"]
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(style="dim", overflow="fold", max_width=20)
    table.add_column(overflow="fold")
    for name, field in schema.get("properties", {}).items():
        must = " (required)" if name in schema.get("required", ()) else ""
        table.add_row(Text(name), Text(_kind(field)), Text(field.get("description", "") + must))
    print_table(console, table)


def _first_line(entry: Mapping[str, Any]) -> str:
    return str(entry["description"]).strip().partition("\n")[0]


def _kind(field: Mapping[str, Any]) -> str:
    """Return a parameter's type in a few words."""
    if "enum" in field:
        return " | ".join(str(each) for each in field["enum"])
    if "anyOf" in field:
        kinds = [_kind(each) for each in field["anyOf"]]
        return " | ".join(kind for kind in dict.fromkeys(kinds) if kind not in ("null", "any")) or "any"
    return str(field.get("type", "any"))


@dataclass(frozen=True, slots=True)
class Check:
    file: str
    valid: bool
    name: str | None
    kind: str
    """``graph``, ``script`` or ``python``."""
    size: str
    """Number of nodes, lines or workflows, in words."""
    findings: list[dict[str, Any]]


def check_files(files: Sequence[str], app: App, *, tasks: bool = False) -> list[Check]:
    """Check files. ``tasks``: look up the names of tasks, too."""
    return [_python(file) if file.endswith(PYTHON) else _document(file, app, tasks) for file in files]


def _python(file: str) -> Check:
    """Import the file as ``run`` does: a function that cannot be a workflow is refused where it is defined."""
    try:
        names = workflows_in(file)
    except InvalidDocument as error:
        return Check(file, False, None, "python", "", error.findings)
    except UnsupportedPython as error:
        return Check(file, False, None, "python", "", UnfitFunction(error).findings)
    return Check(file, True, ", ".join(names), "python", several(len(names), "workflow"), [])


def _document(file: str, app: App, tasks: bool) -> Check:
    document = read_document(file)
    return _script(document, app, tasks) if document.is_script else _graph(document, app, tasks)


def _graph(document: Document, app: App, tasks: bool) -> Check:
    try:
        compiled, warnings = compile_document(document, app.registry)
    except InvalidDocument as error:
        return Check(document.file, False, None, "graph", "", error.findings)
    if tasks:
        warnings += check_tasks(app, document, compiled)
    size = several(len(compiled.plan.nodes), "node")
    refused = located(refused_by_deploy(compiled.plan), document.text) if compiled.plan.triggers else []
    return Check(document.file, not refused, compiled.plan.name, "graph", size, [*refused, *warnings])


def _script(document: Document, app: App, tasks: bool) -> Check:
    checked = check_script(document, app.tasks.names() if tasks else None)
    size = several(checked.lines, "line")
    return Check(document.file, checked.valid, checked.name, "script", size, checked.findings)


async def lacking_live(
    files: Sequence[str], store: str | None, server: str | None, app: str | None
) -> list[LackingVersion]:
    """Return what executions in flight need and the program lacks.

    The program is that of ``app``, or of the first Python file. Running workers are ignored: the program may be going
    to replace them.
    """
    there = server_of(server, store)
    program = _program_of(files, app)
    if program is None:
        if any(file.endswith(SCRIPT) for file in files):
            return []
        raise Refusal(
            "--against-live compares a program or a script with executions in flight, and none is given",
            "Name its module with --app.",
        )
    if there is not None:
        from dalsegno.cli.run.requirements import lacking_there  # noqa: PLC0415 - only who speaks HTTP pays for it

        return await lacking_there(there, make_app("memory:", program))
    made = make_app(store, program)
    async with opened(made) as client:
        return await lacking_versions(client, own_program(made))


def _program_of(files: Sequence[str], app: str | None) -> str | None:
    return app or next((file for file in files if file.endswith(PYTHON)), None)


async def moves_live(
    files: Sequence[str], store: str | None, server: str | None, app: str | None
) -> LiveMoves:
    """Return which executions in flight could go on with the scripts and with the program."""
    from dalsegno.cli.run.live_moves import moves_here, moves_there  # noqa: PLC0415 - it speaks HTTP, too

    there, program = server_of(server, store), _program_of(files, app)
    documents = [read_document(file) for file in files if file.endswith(SCRIPT)]
    if there is not None:
        return await moves_there(there, make_app("memory:", program), documents)
    return await moves_here(make_app(store, program), documents)


def valid_or_not(
    checks: Sequence[Check],
    lacking: Sequence[LackingVersion] | None = None,
    moves: LiveMoves | None = None,
) -> dict[str, Any]:
    """Return one object for all files; each finding names its file. ``lacking`` and ``moves``: given if executions in
    flight were checked."""
    findings = [{"file": check.file, **finding} for check in checks for finding in check.findings]
    fields: dict[str, Any] = {
        "valid": all(check.valid for check in checks) and not lacking,
        "files": [
            {"file": check.file, "kind": check.kind, "valid": check.valid, "name": check.name}
            for check in checks
        ],
        "findings": findings,
    }
    if lacking is not None:
        fields["lacking"] = [{**msgspec.structs.asdict(each), "message": each.sentence} for each in lacking]
    if moves is not None:
        fields["moves"] = [moves_as_object(each) for each in moves.reports]
        fields["unchecked"] = list(moves.unchecked)
    bad = [check.file for check in checks if not check.valid]
    if bad:
        fields["error"] = {"code": InvalidDocument.code, "message": f"not valid: {', '.join(bad)}"}
    return fields


def print_checks(checks: Sequence[Check]) -> None:
    console = stdout()
    signs = signs_for(console)
    for check in checks:
        if check.valid:
            console.print(
                f"[green]{signs.states['COMPLETED']}[/] {escape(check.file)}: "
                f"{_named(check.name)}{check.size}",
                soft_wrap=True,
            )
        else:
            count = sum(finding["severity"] == "error" for finding in check.findings)
            sign = escape(signs.states["FAILED"])
            console.print(f"[red]{sign}[/] {escape(check.file)}: {several(count, 'error')}", soft_wrap=True)
        show_findings(console, check.file, check.findings)


def print_lacking(lacking: Sequence[LackingVersion]) -> None:
    console = stdout()
    sign = escape(signs_for(console).states["FAILED"])
    for each in lacking:
        console.print(f"[red]{sign}[/] {escape(each.sentence)}", soft_wrap=True)


def print_moves(moves: LiveMoves) -> None:
    for report in moves.reports:
        print_report(report)
    for name in moves.unchecked:
        print(f"{name}: whether its executions could be moved is checked with --store, where its program is")


def _named(name: str | None) -> str:
    return f"[bold]{escape(name)}[/], " if name else ""


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
            console.print(_trigger(trigger, "would be " if dry_run else ""), soft_wrap=True)
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


def _trigger(trigger: DeployedTrigger, would: str) -> Text:
    style = {"added": "green", "changed": "yellow", "removed": "red"}.get(trigger.status, "dim")
    about = f"  {trigger.about}" if trigger.about else ""
    line = Text.assemble(
        "  ",
        (f"{trigger.kind} '{trigger.name}' {would}{trigger.status}", style),
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
