"""The entry point: all commands in one program."""

from __future__ import annotations

import os
import sys
import threading
from typing import Annotated, NoReturn

import typer

from dalsegno.cli.commands import (
    alerts,
    approvals,
    control,
    credentials,
    definitions,
    executions,
    keys,
    operations,
    processes,
    run,
    schedules,
    snapshots,
    start,
    tasks,
    webhooks,
)
from dalsegno.cli.group import HELP_OPTIONS, Commands, only_named
from dalsegno.version import __version__

app = typer.Typer(
    name="dalsegno",
    cls=Commands,
    help="Durable workflow engine: executions resume where they stopped.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help needs no rich and starts twice as fast
    pretty_exceptions_enable=False,
    context_settings=HELP_OPTIONS,
)

for register in (
    run.register,
    start.register,
    executions.register_executions,
    executions.register_watch,
    operations.register_workers,
    control.register,
    tasks.register,
    operations.register_dead,
    approvals.register,
    definitions.register_definitions,
    definitions.register_versions,
    schedules.register,
    processes.register_dev,
    processes.register_server,
    processes.register_worker,
    processes.register_scheduler,
    keys.register,
    operations.register_limits,
    credentials.register,
    snapshots.register,
    webhooks.register,
    alerts.register,
    operations.register_migrate,
    operations.register_backup,
    operations.register_doctor,
    operations.register_bench,
):
    register(app)


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
    """Durable workflow engine: executions resume where they stopped."""


def main() -> NoReturn:
    _tolerate_narrow_encodings()
    try:
        only_named(app, sys.argv[1:])(prog_name="dalsegno")
    except SystemExit as end:
        _leave(end.code if isinstance(end.code, int) else 0)
    _leave(0)


def _tolerate_narrow_encodings() -> None:
    """Print question marks, instead of failing, on a terminal that is not UTF-8."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and (stream.encoding or "").lower().replace("-", "") != "utf8":
            reconfigure(errors="replace")


def _leave(code: int) -> NoReturn:
    """End the process. A task's thread cannot be stopped, so one that still runs is not waited for."""
    if not any(_holds(thread) for thread in threading.enumerate()):
        sys.exit(code)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def _holds(thread: threading.Thread) -> bool:
    return thread is not threading.main_thread() and not thread.daemon and thread.is_alive()
