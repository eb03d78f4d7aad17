"""``bench`` lives elsewhere: this program only opens the door."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import typer
from typer.testing import CliRunner

from dalsegno.cli.commands import operations


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    app = typer.Typer()
    app.command("other")(lambda: None)
    monkeypatch.setattr(operations, "_FILE", operations._FILE.parents[1] / "version.py")
    operations.register_bench(app)
    return app


def measure(name: str, rounds: int = 1) -> None:
    """Measure one thing."""
    typer.echo(f"{name} {rounds}")
    raise typer.Exit(rounds)


def test_arguments_are_passed_on_untouched(program: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(operations.MODULE)
    module.register = lambda app: app.command()(measure)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dalsegno.bench", ModuleType("dalsegno.bench"))
    monkeypatch.setitem(sys.modules, operations.MODULE, module)
    result = CliRunner().invoke(program, ["bench", "chain", "--rounds", "4"])
    assert (result.exit_code, result.stdout) == (4, "chain 4\n")
    for option in ("--help", "-h"):
        assert "Measure one thing." in CliRunner().invoke(program, ["bench", option]).stdout
