"""``credentials``: secrets that workflows use by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.group import family
from dalsegno.cli.options import Json, Place, Server, Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dalsegno.cli.books.credentials import Credentials

Name = Annotated[str, typer.Argument(metavar="NAME", help="The credential's name.", show_default=False)]

commands = family(
    "credentials", "Secrets that workflows use by name. Their values are sealed in the store and never shown."
)


def register(app: typer.Typer) -> None:
    app.add_typer(commands)
    app.command("protect")(protect)
    app.command("unprotect")(unprotect)


@commands.command("add")
def add(
    name: Name,
    type: Annotated[
        str, typer.Option("--type", "-t", metavar="TYPE", help="bearer, basic, header, query or custom.")
    ] = "bearer",
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="HOST",
            help="Where it may be sent over https: api.example.com, api.example.com:8443, '*.example.com'; "
            "http://localhost:9000 allows plain http there. May be given several times.",
            show_default=False,
        ),
    ] = None,
    workflow: Annotated[
        list[str] | None,
        typer.Option(
            "--workflow",
            "-w",
            metavar="NAME",
            help="Who may use it, if an admin deployed or approved it: a name or pattern, several times; without it "
            "any workflow of any key with the scope run.",
            show_default=False,
        ),
    ] = None,
    definition: Annotated[
        list[str] | None,
        typer.Option(
            "--definition",
            metavar="HASH",
            help="Approve the definition with this content hash for it, as `credentials approve` does; several times. "
            "`dalsegno versions NAME --json` shows the hashes.",
            show_default=False,
        ),
    ] = None,
    sent_as: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The header or query parameter that carries it.", show_default=False
        ),
    ] = "",
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env", metavar="FIELD=VARIABLE", help="Take a value from the environment.", show_default=False
        ),
    ] = None,
    stdin: Annotated[
        bool, typer.Option("--stdin", help="Take the values from stdin: a JSON object, or the only value.")
    ] = False,
    field: Annotated[
        list[str] | None,
        typer.Option(
            "--field",
            metavar="FIELD=VALUE",
            help="Give a value here, where others may see it.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the stored values, change the rest.")] = False,
    description: Annotated[
        str, typer.Option(metavar="TEXT", help="What it is for.", show_default=False)
    ] = "",
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Add a credential, or change one. Values that no option gives are asked for."""
    from msgspec import to_builtins

    from dalsegno.cli.credentials import as_object, say_unapproved, values_for
    from dalsegno.cli.output import emit
    from dalsegno.engine.secrets import NewCredential

    values = None if keep else values_for(type, env or (), field or (), from_stdin=stdin)
    new = NewCredential(name, type, values, host or (), workflow or ("*",), sent_as, description)

    async def put(credentials: Credentials) -> None:
        info, is_new = await credentials.put(new)
        approved = [await credentials.approve(each) for each in definition or ()]
        if json:
            emit({**as_object(info), **({"approved": to_builtins(approved)} if approved else {})})
            return
        print(f"{'added' if is_new else 'changed'} credential '{name}'")
        for each in approved:
            print(f"approved {each.workflow}@{each.version}")
        say_unapproved(await credentials.listed(), name)

    _with_credentials(Place(store, server), put, make_store=True)


@commands.command("ls")
def list_credentials(store: Store = None, server: Server = None, json: Json = False) -> None:
    """List credentials: their types, hosts and workflows, without values; and definitions that lack an approval."""
    from msgspec import to_builtins

    from dalsegno.cli.credentials import as_object, print_credentials, say_unapproved
    from dalsegno.cli.output import emit

    async def look(credentials: Credentials) -> None:
        found, listed = await credentials.all(), await credentials.listed()
        if json:
            emit(
                {"credentials": [as_object(each) for each in found], "definitions": to_builtins(listed.items)}
            )
            return
        print_credentials(found)
        say_unapproved(listed)

    _with_credentials(Place(store, server), look)


@commands.command("rm")
def remove(name: Name, store: Store = None, server: Server = None, json: Json = False) -> None:
    """Remove a credential. Runs that need it fail from now on."""
    from dalsegno.cli.output import emit

    async def drop(credentials: Credentials) -> None:
        await credentials.remove(name)
        emit({"removed": name}) if json else print(f"removed credential '{name}'")

    _with_credentials(Place(store, server), drop)


@commands.command("approve")
def approve(
    workflows: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORKFLOW[@VERSION]", help="What to approve.", show_default=False),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Approve every current and aliased version that a credential lists, and end the grace.",
        ),
    ] = False,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Let definitions use the credentials that list their names. What an admin deploys is approved already."""
    from msgspec import to_builtins

    from dalsegno.cli.output import emit
    from dalsegno.cli.problems import Refusal

    if bool(workflows) == everything:
        raise Refusal(
            "nothing to approve", "Name workflows, such as billing or billing@3, or give --all alone."
        )

    async def work(credentials: Credentials) -> None:
        hashes = [await credentials.hash_of(each) for each in workflows or ()]
        if everything:
            hashes = [each.hash for each in (await credentials.listed()).items if not each.approved]
        approved = [await credentials.approve(each) for each in hashes]
        if everything:
            await credentials.end_grace()
        if json:
            emit({"approved": to_builtins(approved)})
            return
        for each in approved:
            print(f"approved {each.workflow}@{each.version}")
        if not approved:
            print("everything that a credential lists is approved")

    _with_credentials(Place(store, server), work)


@commands.command("withdraw")
def withdraw(
    workflow: Annotated[
        str,
        typer.Argument(
            metavar="WORKFLOW[@VERSION]", help="What is not approved any more.", show_default=False
        ),
    ],
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Withdraw the approval of a definition: its runs get no credential that lists workflows from now on."""
    from dalsegno.cli.output import emit

    async def work(credentials: Credentials) -> None:
        await credentials.withdraw(await credentials.hash_of(workflow))
        emit({"withdrawn": workflow}) if json else print(f"withdrew the approval of {workflow}")

    _with_credentials(Place(store, server), work)


@commands.command("rotate")
def rotate(store: Store = None, server: Server = None, json: Json = False) -> None:
    """Seal everything anew with the first key. It may be interrupted and run again.

    Exit code 1 if a credential cannot be read with any of the keys.
    """
    from dalsegno.cli.credentials import print_rotation
    from dalsegno.cli.output import emit

    async def turn(credentials: Credentials) -> None:
        done = await credentials.rotate()
        if json:
            emit({"rotated": done.rotated, "current": done.current, "unreadable": done.unreadable})
        else:
            print_rotation(done)
        if done.unreadable:
            raise typer.Exit(1)

    _with_credentials(Place(store, server), turn)


@commands.command("new-key")
def new_key(
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="PATH",
            help="Put it first into this file, before the keys that are there, instead of printing it.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make a key for sealing credentials, and print it."""
    from dalsegno.cli.credentials import advise
    from dalsegno.cli.output import emit
    from dalsegno.engine.secrets.key_source import add_key
    from dalsegno.engine.secrets.keys import new_key as make

    if file is None:
        key = make()
        emit({"key": key}) if json else print(key)
    else:
        add_key(file)
        if json:
            emit({"file": str(file)})
    advise(file)


def protect(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="A workflow's name, or a pattern such as 'billing-*'.", show_default=False
        ),
    ] = None,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Let only admins deploy under a name, below it with /, and change its aliases; without NAME, list such names."""
    from dalsegno.cli.credentials import print_protected, protected_object
    from dalsegno.cli.output import emit

    async def work(credentials: Credentials) -> None:
        if name is None:
            found = await credentials.protected_names()
            emit({"protected": [protected_object(each) for each in found]}) if json else print_protected(
                found
            )
            return
        made = await credentials.protect(name)
        emit(protected_object(made)) if json else print(f"protected '{name}'")

    _with_credentials(Place(store, server), work, make_store=name is not None)


def unprotect(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As it was protected.", show_default=False)],
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """End the protection of a name. Names that a credential lists stay protected."""
    from dalsegno.cli.output import emit

    async def work(credentials: Credentials) -> None:
        await credentials.unprotect(name)
        emit({"unprotected": name}) if json else print(f"'{name}' is not protected by an admin any more")

    _with_credentials(Place(store, server), work)


def _with_credentials(
    place: Place, work: Callable[[Credentials], Awaitable[None]], *, make_store: bool = False
) -> None:
    from dalsegno.cli.books.credentials import CREDENTIALS

    CREDENTIALS.use(place, work, make_store=make_store)
