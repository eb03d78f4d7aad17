"""``dead``: what does not go on by itself."""

from __future__ import annotations

from typing import Annotated

import typer

from dalsegno.cli.options import AppName, Json, Limit, Server, Store

LetterId = Annotated[
    str, typer.Argument(metavar="ID", help="As `dalsegno dead ls` shows it.", show_default=False)
]

commands = typer.Typer(
    name="dead",
    help="What does not go on by itself: see why, try it again, or give it up.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def register(app: typer.Typer) -> None:
    app.add_typer(commands)


@commands.command("ls")
def list_dead(
    limit: Limit = 20, store: Store = None, server: Server = None, app: AppName = None, json: Json = False
) -> None:
    """List orders that cannot be delivered, steps that no worker can run, and executions that the system failed."""
    import asyncio

    from dalsegno.cli.dead import as_object, letters_of, print_letters
    from dalsegno.cli.output import emit
    from dalsegno.cli.places import where_to

    async def look() -> None:
        async with letters_of(where_to(store, server, app)) as letters:
            found = await letters.all(limit)
        if json:
            emit({"dead": [as_object(letter) for letter in found]})
        else:
            print_letters(found)

    asyncio.run(look())


@commands.command("retry")
def retry(
    letter: LetterId, store: Store = None, server: Server = None, app: AppName = None, json: Json = False
) -> None:
    """Try it once more. A failed execution is retried as a new one; the rest is tried by the workers that run."""
    _handle("retry", letter, store, server, app, json=json)


@commands.command("drop")
def drop(
    letter: LetterId, store: Store = None, server: Server = None, app: AppName = None, json: Json = False
) -> None:
    """Give it up: an order is not carried out, an execution is cancelled, a failed one is no longer listed."""
    _handle("drop", letter, store, server, app, json=json)


def _handle(
    verb: str, letter: str, store: str | None, server: str | None, app: str | None, *, json: bool
) -> None:
    import asyncio

    from dalsegno.cli.dead import letters_of
    from dalsegno.cli.output import emit
    from dalsegno.cli.places import where_to

    async def run() -> None:
        async with letters_of(where_to(store, server, app)) as letters:
            execution = await (letters.retry(letter) if verb == "retry" else letters.drop(letter))
        if json:
            emit({"id": letter, "execution": execution})
        elif verb == "drop":
            print(f"dropped {letter}")
        else:
            print(f"tried again: execution {execution}")

    asyncio.run(run())
