"""Node types and their parameters, as the registry knows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dalsegno.cli.output import print_table, stdout
from dalsegno.cli.problems import Unknown
from dalsegno.cli.suggesting import did_you_mean
from dalsegno.nodes.registry import NodeRegistry
from dalsegno.ports.node import NodeType


def find_type(registry: NodeRegistry, name: str, given: str | None = None) -> NodeType:
    """By type or alias; ``given`` is the application whose types are known here too."""
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
    console.print("\n`dalsegno nodes TYPE` tells more about one of them", style="dim", markup=False)


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
    """A parameter's type in a few words."""
    if "enum" in field:
        return " | ".join(str(each) for each in field["enum"])
    if "anyOf" in field:
        kinds = [_kind(each) for each in field["anyOf"]]
        return " | ".join(kind for kind in dict.fromkeys(kinds) if kind not in ("null", "any")) or "any"
    return str(field.get("type", "any"))
