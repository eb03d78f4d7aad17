"""``validate``, ``deploy`` and ``nodes``; ``workflows``, ``versions`` and ``alias``: definitions and their versions."""

from __future__ import annotations

from typing import Annotated

import typer

from dalsegno.cli.options import AppName, Json, Server, Store

Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help="Scripts (.flow), Python files, JSON or YAML documents; - for a document on stdin.",
        show_default=False,
    ),
]


def register_definitions(app: typer.Typer) -> None:
    app.command("validate")(validate)
    app.command("deploy")(deploy)
    app.command("nodes")(nodes)


def validate(
    files: Sources,
    app: AppName = None,
    against_live: Annotated[
        bool,
        typer.Option(
            "--against-live", help="Also check what executions in flight need, and which could be moved here."
        ),
    ] = False,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Check documents, scripts and Python workflows.

    Nothing is stored. Exit code 2 if one has errors. With --against-live, the program is also compared with the earlier
    versions that executions in flight on the --store or --server run: an execution would wait for a name or a task that
    the program no longer has. Executions of scripts and Python workflows are tried with the new version, and those that
    could not be moved to it are listed with the reasons: exit code 1, if nothing else is wrong.
    """
    import asyncio

    from dalsegno.cli.output import emit
    from dalsegno.cli.target.target import make_app
    from dalsegno.cli.views.definitions import (
        check_files,
        lacking_live,
        moves_live,
        print_checks,
        print_lacking,
        print_moves,
        valid_or_not,
    )

    checks = check_files(files, make_app("memory:", app), tasks=app is not None)
    is_valid = all(check.valid for check in checks)
    lacking = asyncio.run(lacking_live(files, store, server, app)) if against_live else []
    moves = asyncio.run(moves_live(files, store, server, app)) if against_live and is_valid else None
    if json:
        emit(valid_or_not(checks, lacking if against_live else None, moves))
    else:
        print_checks(checks)
        print_lacking(lacking)
        if moves is not None:
            print_moves(moves)
    if not is_valid or lacking:
        raise typer.Exit(2)
    raise typer.Exit(1 if moves is not None and not moves.are_all_movable else 0)


def deploy(
    files: Sources,
    alias: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Point this alias at the deployed version, e.g. stable.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check and show what would change; store nothing.")
    ] = False,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Store documents, scripts and Python workflows.

    They are stored under their names, and the changes are shown. The same content again is the same version; deploying
    an older version makes it current again. Executions keep the version they were started with. The schedules and
    webhooks of a graph's trigger nodes are created, changed and removed. Of a Python file, all workflows that it
    defines are stored; a worker needs its code to run them, and stores them itself when it starts.
    """
    import asyncio

    from dalsegno.cli.deploy import deploy_documents
    from dalsegno.cli.output import emit
    from dalsegno.cli.programs import read_sources
    from dalsegno.cli.target.stores import server_of
    from dalsegno.cli.target.target import where_to
    from dalsegno.cli.views.definitions import print_deployed
    from dalsegno.model.definition import check_alias

    if alias is not None:
        check_alias(alias)
    where = where_to(store, server, app)
    documents = read_sources(files, server_of(server, store))
    deployed = asyncio.run(
        deploy_documents(where, documents, warn_tasks=app is not None, alias=alias, dry_run=dry_run)
    )
    if json:
        emit({"definitions": [each.as_object() for each in deployed], "stored": not dry_run})
    else:
        print_deployed(deployed, dry_run=dry_run)


def nodes(
    type: Annotated[
        str | None, typer.Argument(metavar="TYPE", help="Only this type, in full.", show_default=False)
    ] = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """List node types and their parameters."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.target.target import make_app
    from dalsegno.cli.views.definitions import describe, find_type, print_catalogue, print_type

    registry = make_app("memory:", app).registry
    if type is not None:
        entry = describe(find_type(registry, type, app))
        emit(entry) if json else print_type(entry)
        return
    entries = [describe(registry.get(name)) for name in registry.types()]
    emit({"nodes": entries}) if json else print_catalogue(entries)


Name = Annotated[str, typer.Argument(metavar="NAME", help="A deployed workflow.", show_default=False)]


def register_versions(app: typer.Typer) -> None:
    app.command("workflows")(workflows)
    app.command("versions")(versions)
    app.command("alias")(alias)


def workflows(store: Store = None, server: Server = None, app: AppName = None, json: Json = False) -> None:
    """List deployed workflows with versions, aliases and kind."""
    import asyncio

    from dalsegno.cli.output import emit
    from dalsegno.cli.target.target import reached, where_to
    from dalsegno.cli.views.versions import print_workflows, read_workflows

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
    """List the versions of a workflow, newest first.

    With their aliases; * marks the current version.
    """
    import asyncio

    from dalsegno.cli.output import emit
    from dalsegno.cli.target.target import reached, where_to
    from dalsegno.cli.views.versions import print_versions, read_versions

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
        str, typer.Argument(metavar="ALIAS", help="E.g. stable; `latest` is reserved.", show_default=False)
    ],
    version: Annotated[
        str | None,
        typer.Argument(
            metavar="VERSION", help="Version number, or an alias that points at it now.", show_default=False
        ),
    ] = None,
    rm: Annotated[bool, typer.Option("--rm", help="Remove the alias.")] = False,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Point an alias at a version, or remove it. `start NAME@ALIAS` then uses that version."""
    import asyncio

    from dalsegno.cli.errors import Refusal
    from dalsegno.cli.output import emit
    from dalsegno.cli.target.target import reached, where_to
    from dalsegno.cli.views.versions import AliasChange, remove_alias, set_alias

    if rm == (version is not None):
        raise Refusal(
            "an alias needs a version to point at, or --rm to remove it",
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
