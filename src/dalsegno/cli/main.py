"""The entry point: all commands in one program, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import os
import sys
import threading
from typing import Annotated, NoReturn

import typer

from dalsegno.cli.commands import (
    alerts,
    approvals,
    backup,
    bench,
    control,
    credentials,
    dead,
    definitions,
    dev,
    doctor,
    executions,
    keys,
    limits,
    migrate,
    run,
    schedule,
    scheduler,
    server,
    snapshots,
    start,
    versions,
    watch,
    webhook,
    worker,
    workers,
)
from dalsegno.cli.group import HELP_OPTIONS, Commands
from dalsegno.version import __version__

app = typer.Typer(
    name="dalsegno",
    cls=Commands,
    help="Durable workflows that go on from where they stood.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help needs no rich and starts twice as fast
    pretty_exceptions_enable=False,
    context_settings=HELP_OPTIONS,
)

for part in (
    run,
    start,
    executions,
    watch,
    workers,
    control,
    dead,
    approvals,
    definitions,
    versions,
    schedule,
    dev,
    server,
    worker,
    scheduler,
    keys,
    limits,
    credentials,
    snapshots,
    webhook,
    alerts,
    migrate,
    backup,
    doctor,
    bench,
):
    part.register(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"dalsegno {__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Durable workflows that go on from where they stood."""


def main() -> NoReturn:
    _tolerate_narrow_encodings()
    try:
        app(prog_name="dalsegno")
    except SystemExit as end:
        _leave(end.code if isinstance(end.code, int) else 0)
    _leave(0)


def _tolerate_narrow_encodings() -> None:
    """A terminal that is not UTF-8 gets question marks, not an exception."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and (stream.encoding or "").lower().replace("-", "") != "utf8":
            reconfigure(errors="replace")


def _leave(code: int) -> NoReturn:
    """A task's thread cannot be stopped; one that still runs must not hold the process."""
    if not any(_holds(thread) for thread in threading.enumerate()):
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _holds(thread: threading.Thread) -> bool:
    return thread is not threading.main_thread() and not thread.daemon and thread.is_alive()
