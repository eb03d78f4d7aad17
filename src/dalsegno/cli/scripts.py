"""Scripts (``.flow`` files) as validation sees them: their findings with the lines they stand on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dalsegno.cli.documents import Document
from dalsegno.engine.scripting import sources
from dalsegno.lang import Finding, FlowSyntaxError
from dalsegno.lang.script.parsing import parse_program


@dataclass(frozen=True, slots=True)
class ScriptCheck:
    """``name`` is None if the source is no program."""

    name: str | None
    lines: int
    findings: list[dict[str, Any]]

    @property
    def valid(self) -> bool:
        return not any(finding["severity"] == "error" for finding in self.findings)


def check_script(document: Document, tasks: Iterable[str] | None) -> ScriptCheck:
    """With ``tasks``, literal names of tasks are looked up among them."""
    try:
        source = document.text.decode("utf-8")
    except UnicodeDecodeError as error:
        return ScriptCheck(None, 0, [_as_object(_not_utf8(document.text, error.start))])
    findings = [_as_object(finding) for finding in sources.check_script(source, tasks)]
    return ScriptCheck(_name(source, document.name), len(source.splitlines()), findings)


def _name(source: str, default: str) -> str | None:
    try:
        return parse_program(source, default)[0].name
    except FlowSyntaxError:
        return None  # the findings say why


def _not_utf8(text: bytes, position: int) -> Finding:
    line = text.count(b"\n", 0, position) + 1
    column = position - (text.rfind(b"\n", 0, position) + 1) + 1
    return Finding("syntax", "error", "the file is not UTF-8: save it in that encoding", line, column)


def _as_object(finding: Finding) -> dict[str, Any]:
    """With the keys that findings of graphs have, too."""
    return {"pointer": "", **finding.as_dict()}
