"""Examples that need a server: run against one, as printed but for the port."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dalsegno import App
from tests.docs.pages import ROOT, Block, blocks, fits, pages
from tests.server.conftest import LiveServer

MARK = "with a server"
PRINTED = "127.0.0.1:8700"
PAGES = [
    page
    for page in (ROOT / "README.md", *pages())
    if any(block.value.startswith(MARK) for block in blocks(page))
]
SECONDS = 60.0


@pytest.fixture
def folder(tmp_path: Path, launchers: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a reader has: the files that the page tells to save, and the examples of the clone."""
    for name in os.environ:
        if name.startswith("DALSEGNO_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{launchers}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.setenv("PYTHONUTF8", "1")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.fixture
def place(folder: Path) -> Iterator[str]:
    with LiveServer(App(f"sqlite:///{folder / 'pages.db'}")) as live:
        yield live.url.removeprefix("http://")


def test_there_are_such_pages() -> None:
    assert {page.name for page in PAGES} >= {"README.md", "tutorial-server.md", "client.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_examples_of_the_page_work_with_a_server(page: Path, folder: Path, place: str) -> None:
    names: dict[str, object] = {"__name__": "__page__"}
    shell = Shell(folder)
    for block in blocks(page):
        if block.title is not None:
            (folder / block.title).write_text(block.body, encoding="utf-8")
        elif block.value.startswith(MARK) and block.language == "python":
            _run_python(block, names, place)
        elif block.value.startswith(MARK):
            _run_commands(block, shell, place)


class Shell:
    """Commands one after the other; what one has set, the next one knows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.memory = folder / ".memory"
        self.memory.touch()

    def run(self, command: str) -> tuple[int, str]:
        script = f"set -a; source {self.memory}; set +a\n{command}\ncode=$?; declare -p ID DALSEGNO_SERVER 2>/dev/null"
        done = subprocess.run(
            ["bash", "-c", f"{script} >{self.memory}; exit $code"],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        )
        return done.returncode, done.stdout.decode()


def _run_commands(block: Block, shell: Shell, place: str) -> None:
    body = re.sub(r"\\\n\s*", " ", block.body.replace(PRINTED, place))
    for part in ("\n" + body).split("\n$ ")[1:]:
        command, _, expected = part.partition("\n")
        code, printed = shell.run(command)
        assert code == 0, f"{block.place}: {command} exited with {code}\n{printed}"
        assert '"code":"DS-' not in printed, f"{block.place}: {command} was refused\n{printed}"
        if expected.strip():
            assert fits(expected, printed), f"{block.place}: shown\n{expected}\nbut printed\n{printed}"


def _run_python(block: Block, names: dict[str, object], place: str) -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block.body.replace(PRINTED, place), block.place, "exec"), names)
    if block.output is not None:
        told = printed.getvalue()
        assert fits(block.output, told), f"{block.place}: shown\n{block.output}\nbut printed\n{told}"
