"""``start``: a new execution for a worker to run."""

from __future__ import annotations

from typing import Annotated

import typer

from dalsegno.cli.options import AppName, Input, Json, Key, Server, Store, Tags


def register(app: typer.Typer) -> None:
    app.command("start")(start)


def start(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A deployed workflow, or one of its versions: NAME@3, NAME@stable.",
            show_default=False,
        ),
    ],
    input: Input = None,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    version: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION", help="A number or an alias. Default: the current one.", show_default=False
        ),
    ] = None,
    priority: Annotated[int, typer.Option(help="Higher goes first.")] = 0,
    tag: Tags = None,
    key: Key = None,
    delay: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Begin after so long: 10m, 1h30m, 7d. PENDING until then.",
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Begin at a time: 2030-01-31T09:00+01:00; UTC if it has no offset.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Start a deployed workflow; a worker runs it. Prints the execution's id."""
    import asyncio

    from dalsegno.cli.documents import read_payload, read_tags
    from dalsegno.cli.output import emit
    from dalsegno.cli.places import reached, where_to
    from dalsegno.cli.versions import naming
    from dalsegno.engine.starting import StartOptions

    wanted = int(version) if version is not None and version.isdecimal() else version
    payload = read_payload(input)
    options = StartOptions(wanted, key, read_tags(tag), priority, delay, at)
    where = where_to(store, server, app)

    async def enqueue() -> None:
        async with reached(where, own=True) as client:
            with naming(name, wanted):
                execution = await client.start(name, payload, options)
            made = await client.status(execution)
        if json:
            fields = {"execution_id": made.id, "workflow": made.workflow, "version": made.version}
            emit({**fields, "kind": made.kind, "status": made.state})
        else:
            print(made.id)

    asyncio.run(enqueue())
