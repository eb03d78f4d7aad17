"""Commands that only look do not load what compiles and runs workflows: people wait for each of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from dalsegno.cli.group import only_named
from dalsegno.cli.main import app
from tests.cli.conftest import Invoke
from tests.cli.documents import write

HEAVY = ("dalsegno.lang", "dalsegno.lang.python", "dalsegno.app", "dalsegno.nodes", "dalsegno.engine.client")
LOADED = """
import json, sys
from dalsegno.cli.main import main
sys.argv = ["dalsegno", *sys.argv[1:]]
try:
    main()
finally:
    print(json.dumps([name for name in sys.modules if name.startswith("dalsegno")]), file=sys.stderr)
"""


@pytest.mark.parametrize("command", [["ls"], ["ls", "--json"], ["--help"], ["--version"]])
def test_looking_loads_no_compiler(invoke: Invoke, folder: Path, command: list[str]) -> None:
    write(folder, one_flow="return 1")
    assert invoke("run", "one.flow").exit_code == 0
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *command], capture_output=True, text=True, cwd=folder, check=True
    )
    loaded = json.loads(done.stderr.splitlines()[-1])
    assert "dalsegno.cli.main" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_the_code_of_unsupported_python_is_the_one_that_errors_are_known_by() -> None:
    from dalsegno.cli.errors import UNSUPPORTED_PYTHON
    from dalsegno.lang.python import UnsupportedPython

    assert UnsupportedPython.code == UNSUPPORTED_PYTHON


ALL = sorted(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


@pytest.mark.parametrize("command", ALL)
def test_of_the_signatures_of_all_commands_only_that_of_the_named_one_is_read(command: str) -> None:
    built = typer.main.get_command(only_named(app, [command, "--json"]))
    assert list(built.commands) == [command]  # type: ignore[attr-defined]


def test_the_version_is_shown_without_reading_signatures() -> None:
    assert typer.main.get_command(only_named(app, ["--version"])).commands == {}  # type: ignore[attr-defined]


@pytest.mark.parametrize("arguments", [[], ["--help"], ["lz"], ["--nonsense", "ls"]])
def test_the_help_and_unknown_names_need_all_commands(arguments: list[str]) -> None:
    assert only_named(app, arguments) is app
    assert sorted(typer.main.get_command(app).commands) == ALL  # type: ignore[attr-defined]


def test_a_mistyped_command_is_still_answered_with_a_suggestion(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dalsegno", "deplyo"], capture_output=True, text=True, cwd=folder, check=False
    )
    assert done.returncode != 0
    assert "deploy" in done.stderr
