"""``start``: a new execution for a worker to run. ``submit``: one that waits for ``trigger``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dalsegno.cli.options import AppName, Input, Json, Key, Server, Store, Tags

if TYPE_CHECKING:
    from dalsegno.engine.starting.start import StartOptions


def register(app: typer.Typer) -> None:
    app.command("start")(start)
    app.command("submit")(submit)


Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A deployed workflow, or one of its versions: NAME@3, NAME@stable.",
        show_default=False,
    ),
]
WantedVersion = Annotated[
    str | None,
    typer.Option(
        "--version",
        metavar="VERSION",
        help="Version number or alias. Default: the current version.",
        show_default=False,
    ),
]
Priority = Annotated[int, typer.Option(help="Higher priorities run first.")]


def start(
    name: Name,
    input: Input = None,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    version: WantedVersion = None,
    priority: Priority = 0,
    tag: Tags = None,
    key: Key = None,
    delay: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Start after this delay: 10m, 1h30m, 7d. PENDING until then.",
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Start at this time: 2030-01-31T09:00+01:00; UTC if it has no offset.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Start a deployed workflow; a worker runs it. Prints the execution's id."""
    from dalsegno.cli.documents import read_payload, read_tags
    from dalsegno.engine.starting.start import StartOptions

    options = StartOptions(_wanted(version), key, read_tags(tag), priority, delay, at)
    _create(name, read_payload(input), options, (store, server, app), pending=False, json=json)


def submit(
    name: Name,
    input: Input = None,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    version: WantedVersion = None,
    priority: Priority = 0,
    tag: Tags = None,
    key: Key = None,
    json: Json = False,
) -> None:
    """Create an execution that waits for `trigger`.

    The workflow, its version and the input are checked now. Prints the execution's id.
    """
    from dalsegno.cli.documents import read_payload, read_tags
    from dalsegno.engine.starting.start import StartOptions

    options = StartOptions(_wanted(version), key, read_tags(tag), priority)
    _create(name, read_payload(input), options, (store, server, app), pending=True, json=json)


def _wanted(version: str | None) -> int | str | None:
    return int(version) if version is not None and version.isdecimal() else version


def _create(
    name: str,
    payload: Any,
    options: StartOptions,
    place: tuple[str | None, str | None, str | None],
    *,
    pending: bool,
    json: bool,
) -> None:
    import asyncio

    from dalsegno.cli.output import emit, execution_names
    from dalsegno.cli.target.target import reached, where_to
    from dalsegno.cli.views.versions import naming

    async def enqueue() -> None:
        async with reached(where_to(*place), own=True) as client:
            create = client.submit if pending else client.start
            with naming(name, options.version):
                execution = await create(name, payload, options)
            made = await client.status(execution)
        if json:
            fields = {"workflow": made.workflow, "version": made.version, "kind": made.kind}
            emit({**execution_names(made.id, made.state), **fields})
        else:
            print(made.id)

    asyncio.run(enqueue())
