"""Every example of the documentation is run or validated, page by page, in the order in which a reader meets them."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

from dalsegno.errors import Finding, InvalidDefinition
from dalsegno.graph.build import load_graph
from dalsegno.lang import Finding as ScriptFinding
from dalsegno.lang import validate
from dalsegno.nodes.registry import builtin_registry
from tests.docs.pages import ROOT, Block, blocks, fits, pages

LANGUAGES = ("python", "flow", "yaml", "json", "console")
PAGES = [
    page
    for page in (ROOT / "README.md", *pages())
    if any(block.language in LANGUAGES for block in blocks(page))
]
SECONDS = 60.0
PROGRAM = 'if __name__ == "__main__":'


@pytest.fixture
def folder(tmp_path: Path, launchers: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What a reader has: an empty directory, the installed program, no settings."""
    for name in os.environ:
        if name.startswith("DALSEGNO_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{launchers}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("PYTHONUTF8", "1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        home = getattr(sys.modules[name], "__file__", None)
        if home is not None and Path(home).is_relative_to(tmp_path):
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_of_the_page_work(page: Path, folder: Path) -> None:
    names: dict[str, object] = {"__name__": "__page__"}
    for block in blocks(page):
        if block.mark == "not run":
            assert block.value, f"{block.place}: say why the block is not run"
        elif block.language == "python":
            _run_python(block, names, folder)
        elif block.language in ("yaml", "json", "flow"):
            _check_document(block, folder)
        elif block.language == "console":
            _run_commands(block, folder)


def _run_python(block: Block, names: dict[str, object], folder: Path) -> None:
    file = folder / (block.title or f"{block.page.stem}_line_{block.line}.py")
    file.write_text(
        block.body, encoding="utf-8"
    )  # a workflow is compiled from its source, which must be in a file
    code = compile(
        block.body, str(file), "exec", dont_inherit=True
    )  # this module's __future__ is not the reader's
    if block.title is not None:
        return
    output = _program_output(file, block) if PROGRAM in block.body else _printed(code, names)
    if block.output is not None:
        _compare(block, block.output, output)


def _printed(code: CodeType, names: dict[str, object]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    return printed.getvalue()


def _program_output(file: Path, block: Block) -> str:
    """The output of a block that is a whole program, run as its reader runs it."""
    done = subprocess.run(
        [sys.executable, file.name],
        cwd=file.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        timeout=SECONDS,
        check=False,
    )
    output = done.stdout.decode()
    assert done.returncode == 0, f"{block.place}: exited with {done.returncode}\n{output}"
    return output


def _check_document(block: Block, folder: Path) -> None:
    if block.title is not None:
        (folder / block.title).write_text(block.body, encoding="utf-8")
    if block.mark == "fragment":
        return
    findings = _script_problems(block.body) if block.language == "flow" else _problems(block.body)
    if block.mark == "invalid":
        assert block.value in {finding.rule for finding in findings}, f"{block.place}: {findings}"
    else:
        assert not findings, f"{block.place}: {findings}"


def _script_problems(source: str) -> list[ScriptFinding]:
    return [finding for finding in validate(source) if finding.severity == "error"]


def _problems(document: str) -> list[Finding]:
    try:
        load_graph(document, builtin_registry(plugins=False))
    except InvalidDefinition as error:
        return [finding for finding in error.findings if finding.severity == "error"]
    return []


def _run_commands(block: Block, folder: Path) -> None:
    """Lines that begin with ``$`` are commands; what follows each, if anything, is what it prints."""
    for part in ("\n" + block.body).split("\n$ ")[1:]:
        command, expected = _parted(part)
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
        printed = done.stdout.decode()
        wanted = int(block.value) if block.mark == "exit" else 0
        assert done.returncode == wanted, f"{block.place}: {command} exited with {done.returncode}\n{printed}"
        if expected.strip():
            _compare(block, expected, printed)


def _parted(part: str) -> tuple[str, str]:
    """A command goes on behind a backslash at the end of its line."""
    command, _, rest = part.partition("\n")
    while command.endswith("\\"):
        following, _, rest = rest.partition("\n")
        command += "\n" + following
    return command, rest


def _compare(block: Block, expected: str, printed: str) -> None:
    assert fits(expected, printed), f"{block.place}: shown\n{expected}\nbut printed\n{printed}"
