"""``workflows``, ``versions`` and ``alias``: what is deployed, in which versions, and what they are called."""

from __future__ import annotations

from typing import Annotated

import typer

from dalsegno.cli.options import AppName, Json, Server, Store

Name = Annotated[str, typer.Argument(metavar="NAME", help="A deployed workflow.", show_default=False)]


def register(app: typer.Typer) -> None:
    app.command("workflows")(workflows)
    app.command("versions")(versions)
    app.command("alias")(alias)


def workflows(store: Store = None, server: Server = None, app: AppName = None, json: Json = False) -> None:
    """List what is deployed: every workflow with its versions, aliases and kind."""
    import asyncio

    from dalsegno.cli.output import emit
    from dalsegno.cli.places import reached, where_to
    from dalsegno.cli.versions import print_workflows, read_workflows

    async def look() -> None:
        async with reached(where_to(store, server, app)) as client:
            lines = await read_workflows(client.stack.archive)
            now = client.stack.clock.now()
        if json:
            emit({"workflows": [line.as_object() for line in lines]})
        else:
            print_workflows(lines, now)

    asyncio.run(look())


def versions(name: Name, store: Store = None, server: Server = None, json: Json = False) -> None:
    """List the versions of a workflow, newest first, with their aliases; * is the current one."""
    import asyncio

    from dalsegno.cli.output import emit
    from dalsegno.cli.places import reached, where_to
    from dalsegno.cli.versions import print_versions, read_versions

    async def look() -> None:
        async with reached(where_to(store, server)) as client:
            lines = await read_versions(client, name)
            now = client.stack.clock.now()
        if json:
            emit({"name": name, "versions": [line.as_object() for line in lines]})
        else:
            print_versions(lines, now)

    asyncio.run(look())


def alias(
    name: Name,
    alias: Annotated[
        str, typer.Argument(metavar="ALIAS", help="Such as stable; latest is given.", show_default=False)
    ],
    version: Annotated[
        str | None,
        typer.Argument(
            metavar="VERSION", help="A number, or the alias that means it now.", show_default=False
        ),
    ] = None,
    rm: Annotated[bool, typer.Option("--rm", help="Remove the alias.")] = False,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Let an alias mean a version: `start NAME@ALIAS` then uses that one."""
    import asyncio

    from dalsegno.cli.output import emit
    from dalsegno.cli.places import reached, where_to
    from dalsegno.cli.problems import Refusal
    from dalsegno.cli.versions import AliasChange, remove_alias, set_alias

    if rm == (version is not None):
        raise Refusal(
            "an alias needs a version to mean, or --rm to be removed",
            "Write: dalsegno alias NAME ALIAS VERSION, or: dalsegno alias NAME ALIAS --rm.",
        )

    async def change() -> AliasChange:
        async with reached(where_to(store, server)) as client:
            archive = client.stack.archive
            if version is None:
                return await remove_alias(archive, name, alias)
            return await set_alias(archive, name, alias, version)

    done = asyncio.run(change())
    emit(done.as_object()) if json else print(done)
