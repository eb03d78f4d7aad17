"""Findings of a document with the lines they stand on, as data and on a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import yaml
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from dalsegno.cli.output import print_table
from dalsegno.errors import Finding

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SAYS_LINE = re.compile(r"line (\d+)", re.IGNORECASE)
_UNREADABLE = frozenset(("syntax", "encoding", "too-deep", "too-large", "duplicate-key", "not-finite"))
"""Rules about the text itself: it cannot be walked, but the message often names the line."""


def located(findings: Iterable[Finding], text: bytes | str) -> list[dict[str, Any]]:
    """Findings as data, each with its line where it can be told."""
    found = list(findings)
    root = None if any(finding.rule in _UNREADABLE for finding in found) else _composed(text)
    return [{**finding.as_dict(), "line": _line(finding, root)} for finding in found]


def show_findings(console: Console, file: str, findings: Sequence[dict[str, Any]]) -> None:
    for finding in findings:
        bad = finding["severity"] == "error"
        head = Text.assemble(
            (_place(file, finding), "bold"),
            "  ",
            (finding["severity"], "red" if bad else "yellow"),
            "  ",
            (finding["rule"], "dim"),
            *(("  ", (finding["pointer"], "dim")) if finding["pointer"] else ()),
        )
        console.print(head, soft_wrap=True)
        print_table(console, Padding(Text(finding["message"]), (0, 0, 0, 4), expand=False))
        for line in finding.get("excerpt", "").splitlines():
            console.print(Text(f"    {line}", "dim"), soft_wrap=True)


def _place(file: str, finding: dict[str, Any]) -> str:
    """Editors and terminals jump to ``file:line:column``."""
    places = (file, finding["line"], finding.get("column"))
    return ":".join(str(place) for place in places if place)


def _composed(text: bytes | str) -> Any:
    """The document's nodes with their places. JSON is YAML, except for tabs."""
    try:
        return yaml.compose(text, Loader=_Loader)
    except (yaml.YAMLError, UnicodeError):
        return None


def _line(finding: Finding, root: Any) -> int | None:
    if root is None:
        said = _SAYS_LINE.search(finding.message)
        return int(said.group(1)) if said else None
    mark = root.start_mark
    for step in finding.pointer.split("/")[1:]:
        entry = _step(root, step.replace("~1", "/").replace("~0", "~"))
        if entry is None:
            break
        mark, root = entry
    return int(mark.line) + 1


def _step(node: Any, name: str) -> tuple[Any, Any] | None:
    """One step of a pointer: where it stands, and what it leads to."""
    if isinstance(node, yaml.SequenceNode) and name.isdigit() and int(name) < len(node.value):
        child = node.value[int(name)]
        return child.start_mark, child
    if isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            if key.value == name:
                return key.start_mark, child
    return None
