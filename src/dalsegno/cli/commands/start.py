"""``start``: a new execution for a worker to run."""

from __future__ import annotations

from typing import Annotated

import typer

from dalsegno.cli.options import AppName, Input, Json, Key, Store, Tags


def register(app: typer.Typer) -> None:
    app.command("start")(start)


def start(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A deployed workflow.", show_default=False)],
    input: Input = None,
    store: Store = None,
    app: AppName = None,
    version: Annotated[int | None, typer.Option(help="Default: the current one.", show_default=False)] = None,
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
    from dalsegno.engine.client import StartOptions

    payload, options = read_payload(input), StartOptions(version, key, read_tags(tag), priority)

    async def enqueue() -> None:
        async with opened(make_app(store, app)) as client:
            made = await client.status(await client.start(name, payload, options))
        if json:
            fields = {"execution_id": made.id, "workflow": made.workflow}
            emit({**fields, "version": made.version, "status": made.state})
        else:
            print(made.id)

    asyncio.run(enqueue())
