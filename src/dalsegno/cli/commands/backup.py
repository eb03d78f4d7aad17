"""``backup``: a consistent copy of a store while processes use it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dalsegno.cli.options import Json, Quiet, Store


def register(app: typer.Typer) -> None:
    app.command("backup")(backup)


def backup(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The copy; a file that exists is not overwritten.")
    ],
    store: Store = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Copy a SQLite store to FILE while processes use it, and verify the copy.

    The copy is the state of the moment at which it was begun. Of a PostgreSQL store it says which command makes one.
    """
    import time

    from dalsegno.cli.backup import Progress, copy, say_what_is_missing
    from dalsegno.cli.opening import make_app
    from dalsegno.cli.output import emit, span

    url = make_app(store).url
    began = time.monotonic()
    made = copy(url, file, Progress(quiet=quiet or json))
    seconds = time.monotonic() - began
    if json:
        told = {"store": url, "file": str(made.file), "bytes": made.bytes, "schema": made.schema}
        emit({**told, "executions": made.executions, "seconds": round(seconds, 3)})
        return
    typer.echo(
        f"{made.file}: {made.bytes / 1e6:.1f} MB, schema {made.schema}, {made.executions:,} executions,"
        f" verified, in {span(seconds)}"
    )
    say_what_is_missing(url)
