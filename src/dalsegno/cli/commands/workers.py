"""``workers``: who works on the store."""

from __future__ import annotations

import typer

from dalsegno.cli.options import Json, Place, Server, Store


def register(app: typer.Typer) -> None:
    app.command("workers")(list_workers)


def list_workers(store: Store = None, server: Server = None, json: Json = False) -> None:
    """List worker processes and remote workers: version, queues, since when, what they run, whether they are alive."""
    from dalsegno.cli.books.workers import WORKERS
    from dalsegno.cli.output import emit
    from dalsegno.cli.roster import as_object, print_workers

    found, now = WORKERS.use(Place(store, server), lambda roster: roster.all())
    if json:
        emit({"workers": [as_object(worker) for worker in found]})
    else:
        print_workers(found, now)
