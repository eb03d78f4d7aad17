"""The help of the command line: every summary fits on one line of a terminal with 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from dalsegno.cli.main import app

COLUMNS = 80
UNCUT = 1000
"""A limit that no summary reaches."""


def groups(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The program and every group inside it, with the words that lead there."""
    inner = getattr(command, "commands", None)
    if inner is None:
        return
    yield path, command
    for name, each in inner.items():
        yield from groups(each, *path, name)


GROUPS = list(groups(typer.main.get_command(app)))


def test_the_program_and_its_groups_are_found() -> None:
    found = {path for path, _ in GROUPS}
    assert {(), ("dead",), ("task",), ("credentials",), ("schedule",)} <= found


@pytest.mark.parametrize(("path", "group"), GROUPS, ids=[" ".join(path) or "dalsegno" for path, _ in GROUPS])
def test_no_summary_is_cut_off(path: tuple[str, ...], group: Any) -> None:
    result = CliRunner().invoke(app, [*path, "--help"], prog_name="dalsegno", env={"COLUMNS": str(COLUMNS)})
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert [line for line in lines if line.rstrip().endswith(("...", "…")) and "Usage:" not in line] == []
    assert max(map(len, lines)) <= COLUMNS
    rows = [line.split(maxsplit=1) for line in lines]
    for name, command in group.commands.items():
        summary = command.get_short_help_str(UNCUT)
        assert summary.endswith(".")
        assert [name, summary] in rows
