"""Programs from the command line: Python files, scripts, and findings in them with their places."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from dalsegno.cli.documents import Document, read_document
from dalsegno.cli.errors import Refusal
from dalsegno.cli.modules import PYTHON, programs_in
from dalsegno.cli.output import print_table
from dalsegno.engine.scripts import programs
from dalsegno.errors import Finding
from dalsegno.lang import Finding as LangFinding
from dalsegno.lang import FlowSyntaxError
from dalsegno.lang.flow.syntax.parser import parse_program
from dalsegno.lang.python import PythonProgram

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


_SAYS_LINE = re.compile(r"line (\d+)(?:, column (\d+))?", re.IGNORECASE)


_UNREADABLE = frozenset(("syntax", "encoding", "too-deep", "too-large", "duplicate-key", "not-finite"))
"""Rules about the text itself: such a document cannot be parsed, but the message often names the line."""


def located(findings: Iterable[Finding], text: bytes | str) -> list[dict[str, Any]]:
    """Return findings as data, each with its line and column if they are known."""
    found = list(findings)
    root = None if any(finding.rule in _UNREADABLE for finding in found) else _composed(text)
    return [{**finding.as_dict(), **_position(finding, root)} for finding in found]


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
    """Return ``file:line:column``, which editors and terminals can open."""
    places = (file, finding["line"], finding.get("column"))
    return ":".join(str(place) for place in places if place)


def _composed(text: bytes | str) -> Any:
    """Return the document's YAML nodes with their positions. JSON is parsed as YAML, which fails on tabs."""
    try:
        return yaml.compose(text, Loader=_Loader)
    except (yaml.YAMLError, UnicodeError):
        return None


def _position(finding: Finding, root: Any) -> dict[str, int | None]:
    if root is None:
        said = _SAYS_LINE.search(finding.message)
        line, column = said.groups() if said else (None, None)
        return {"line": int(line) if line else None, "column": int(column) if column else None}
    mark, node = root.start_mark, root
    for step in finding.pointer.split("/")[1:]:
        entry = _step(node, step.replace("~1", "/").replace("~0", "~"))
        if entry is None:
            break
        mark, node = entry
    return {"line": int(mark.line) + 1, "column": int(mark.column) + 1}


def _step(node: Any, name: str) -> tuple[Any, Any] | None:
    """Resolve one step of a pointer: return its position and its value."""
    if isinstance(node, yaml.SequenceNode) and name.isdigit() and int(name) < len(node.value):
        child = node.value[int(name)]
        return child.start_mark, child
    if isinstance(node, yaml.MappingNode):
        for key, child in node.value:
            if key.value == name:
                return key.start_mark, child
    return None


@dataclass(frozen=True, slots=True)
class PythonDocument(Document):
    program: PythonProgram


def read_sources(files: list[str], server: str | None) -> list[Document]:
    """Return all workflows in the files, in their order."""
    return [found for file in files for found in _python_documents_read(file, server)]


def _python_documents_read(file: str, server: str | None) -> list[Document]:
    if not file.endswith(PYTHON):
        return [read_document(file)]
    if server is not None:
        raise Refusal(
            f"{file} holds Python workflows, whose code must be where it runs",
            f"Start the server and its workers with --app {file}: they store its workflows themselves.",
        )
    programs = programs_in(file)
    if not programs:
        raise Refusal(
            f"{file} defines no workflows",
            "Write @app.workflow before an async function, or give the file that defines them.",
        )
    text = Path(file).read_bytes()
    return [PythonDocument(file, text, program.name, program) for program in programs]


@dataclass(frozen=True, slots=True)
class ScriptCheck:
    """The result of a check. ``name`` is None if the source cannot be parsed."""

    name: str | None
    lines: int
    findings: list[dict[str, Any]]

    @property
    def valid(self) -> bool:
        return not any(finding["severity"] == "error" for finding in self.findings)


def check_script(document: Document, tasks: Iterable[str] | None) -> ScriptCheck:
    """Check a script. ``tasks``: the names among which literal task names are looked up."""
    try:
        source = document.text.decode("utf-8")
    except UnicodeDecodeError as error:
        return ScriptCheck(None, 0, [_as_object(_not_utf8(document.text, error.start))])
    findings = [_as_object(finding) for finding in programs.check_script(source, tasks)]
    return ScriptCheck(_name(source, document.name), len(source.splitlines()), findings)


def _name(source: str, default: str) -> str | None:
    try:
        return parse_program(source, default)[0].name
    except FlowSyntaxError:
        return None  # the findings say why


def _not_utf8(text: bytes, position: int) -> LangFinding:
    line = text.count(b"\n", 0, position) + 1
    column = position - (text.rfind(b"\n", 0, position) + 1) + 1
    return LangFinding("syntax", "error", "the file is not UTF-8: save it in that encoding", line, column)


def _as_object(finding: LangFinding) -> dict[str, Any]:
    """Return the finding with the keys that findings of graphs have."""
    return {"pointer": "", **finding.as_dict()}
