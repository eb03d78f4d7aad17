"""``bench``: a door to the benchmarks, opened only when it is used."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import typer

MODULE = "dalsegno.bench.cli"
_FILE = Path(__file__).parents[2] / "bench" / "cli.py"


def register(app: typer.Typer) -> None:
    if _FILE.exists():
        passing_on = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
        app.command("bench", context_settings=passing_on)(bench)


def bench(context: typer.Context) -> None:
    """Measure this machine."""
    module = import_module(MODULE)
    program = getattr(module, "app", None)
    if program is None:
        program = typer.Typer(rich_markup_mode=None, add_completion=False)
        module.register(program)
    arguments = ["--help" if each == "-h" else each for each in context.args]
    ended = program(arguments, prog_name="dalsegno bench", standalone_mode=False)
    raise typer.Exit(ended if isinstance(ended, int) else 0)
