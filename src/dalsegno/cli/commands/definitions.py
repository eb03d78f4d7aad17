"""``validate``, ``deploy``, ``nodes``: documents and what they are made of."""

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


def register(app: typer.Typer) -> None:
    app.command("validate")(validate)
    app.command("deploy")(deploy)
    app.command("nodes")(nodes)


def validate(
    files: Sources,
    app: AppName = None,
    against_live: Annotated[
        bool,
        typer.Option("--against-live", help="Also check that executions in flight find the names they need."),
    ] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Check documents, scripts and Python workflows; nothing is stored. Exit code 2 if one has errors.

    With --against-live, what executions in flight on the --store run of earlier versions is held against the program:
    a name that their code uses and the program no longer has would make them wait.
    """
    import asyncio

    from dalsegno.cli.checking import check_files, lacking_here, print_checks, print_lacking, valid_or_not
    from dalsegno.cli.opening import make_app
    from dalsegno.cli.output import emit

    checks = check_files(files, make_app("memory:", app), tasks=app is not None)
    lacking = asyncio.run(lacking_here(files, store, app)) if against_live else []
    if json:
        emit(valid_or_not(checks, lacking if against_live else None))
    else:
        print_checks(checks)
        print_lacking(lacking)
    raise typer.Exit(0 if all(check.valid for check in checks) and not lacking else 2)


def deploy(
    files: Sources,
    alias: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Let this alias mean the deployed version: stable ...", show_default=False
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check, and show what would change; store nothing.")
    ] = False,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Store documents, scripts and Python workflows under their names, and show what changed.

    The same content again is the same version; deploying an older one makes it current again. Executions keep the
    version they were started with. Schedules and webhooks of a graph's trigger nodes are made, changed and removed. Of
    a Python file, all workflows that it defines are stored; a worker needs its code to run them, and stores them itself
    when it starts.
    """
    import asyncio

    from dalsegno.cli.deployed import print_deployed
    from dalsegno.cli.output import emit
    from dalsegno.cli.places import where_to
    from dalsegno.cli.python_documents import read_sources
    from dalsegno.cli.stores import server_of
    from dalsegno.cli.storing import deploy_documents
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
        str | None, typer.Argument(metavar="TYPE", help="Only this one, in full.", show_default=False)
    ] = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """List node types and their parameters."""
    from dalsegno.cli.catalogue import describe, find_type, print_catalogue, print_type
    from dalsegno.cli.opening import make_app
    from dalsegno.cli.output import emit

    registry = make_app("memory:", app).registry
    if type is not None:
        entry = describe(find_type(registry, type, app))
        emit(entry) if json else print_type(entry)
        return
    entries = [describe(registry.get(name)) for name in registry.types()]
    emit({"nodes": entries}) if json else print_catalogue(entries)
