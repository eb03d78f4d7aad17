"""``dead``: what does not go on by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dalsegno.cli.group import family
from dalsegno.cli.options import AppName, Json, Limit, Place, Server, Store

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from dalsegno.cli.books.letters import Letters

LetterId = Annotated[
    str, typer.Argument(metavar="ID", help="As `dalsegno dead ls` shows it.", show_default=False)
]

commands = family("dead", "What does not go on by itself: see why, try it again, or give it up.")


def register(app: typer.Typer) -> None:
    app.add_typer(commands)


@commands.command("ls")
def list_dead(
    limit: Limit = 20, store: Store = None, server: Server = None, app: AppName = None, json: Json = False
) -> None:
    """List orders nobody can deliver, steps nobody can run, clean-ups that did not end, and failures of the system."""
    from dalsegno.cli.books.letters import LETTERS
    from dalsegno.cli.dead import as_object, print_letters
    from dalsegno.cli.output import emit

    found = LETTERS.use(Place(store, server, app), lambda letters: letters.all(limit))
    if json:
        emit({"dead": [as_object(letter) for letter in found]})
    else:
        print_letters(found)


def _handles(verb: Literal["retry", "drop"], help: str) -> None:
    def handle(
        letter: LetterId, store: Store = None, server: Server = None, app: AppName = None, json: Json = False
    ) -> None:
        from dalsegno.cli.books.letters import LETTERS
        from dalsegno.cli.output import emit

        def act(letters: Letters) -> Awaitable[str]:
            return letters.retry(letter) if verb == "retry" else letters.drop(letter)

        execution = LETTERS.use(Place(store, server, app), act)
        if json:
            emit({"id": letter, "execution": execution})
        elif verb == "drop":
            print(f"dropped {letter}")
        else:
            print(f"tried again: execution {execution}")

    commands.command(verb, help=help)(handle)


_handles(
    "retry",
    "Try it once more. A failed execution is retried as a new one; the rest is tried by the workers that run.",
)
_handles(
    "drop",
    "Give it up: an order is not carried out, an execution is cancelled, a failed one is no longer listed.",
)
