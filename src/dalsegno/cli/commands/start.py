"""``start``: a new execution for a worker to run."""

from __future__ import annotations

from typing import Annotated

import typer

from dalsegno.cli.options import AppName, Input, Json, Key, Store, Tags


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
    json: Json = False,
) -> None:
    """Start a deployed workflow; a worker runs it. Prints the execution's id."""
    import asyncio

    from dalsegno.cli.documents import read_payload, read_tags
    from dalsegno.cli.opening import make_app, opened
    from dalsegno.cli.output import emit
    from dalsegno.engine.starting import StartOptions

    wanted = int(version) if version is not None and version.isdecimal() else version
    payload, options = read_payload(input), StartOptions(wanted, key, read_tags(tag), priority)
    application = make_app(store, app)

    async def enqueue() -> None:
        async with opened(application) as client:
            await application.workflows.ensure_all(client)
            made = await client.status(await client.start(name, payload, options))
        if json:
            fields = {"execution_id": made.id, "workflow": made.workflow, "version": made.version}
            emit({**fields, "kind": made.kind, "status": made.state})
        else:
            print(made.id)

    asyncio.run(enqueue())
