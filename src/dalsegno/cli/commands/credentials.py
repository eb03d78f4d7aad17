"""``credentials``: secrets that workflows use by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.group import command_group
from dalsegno.cli.options import Json, Place, Server, Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dalsegno.cli.target.administration import Approving, Credentials, ProtectedNames

Name = Annotated[str, typer.Argument(metavar="NAME", help="The credential's name.", show_default=False)]

commands = command_group(
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
            help="Host to which it may be sent over https: api.example.com, api.example.com:8443, '*.example.com'; "
            "http://localhost:9000 allows plain http there. Repeatable.",
            show_default=False,
        ),
    ] = None,
    workflow: Annotated[
        list[str] | None,
        typer.Option(
            "--workflow",
            "-w",
            metavar="NAME",
            help="Required. Workflow that may use it, if an admin deployed or approved it: a name or pattern; "
            "repeatable. '*' is any workflow of any key with the scope run, without an approval.",
            show_default=False,
        ),
    ] = None,
    definition: Annotated[
        list[str] | None,
        typer.Option(
            "--definition",
            metavar="HASH",
            help="Approve the definition with this content hash for it, as `credentials approve` does; repeatable. "
            "`dalsegno versions NAME --json` shows the hashes.",
            show_default=False,
        ),
    ] = None,
    sent_as: Annotated[
        str,
        typer.Option(metavar="NAME", help="Header or query parameter that carries it.", show_default=False),
    ] = "",
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            metavar="FIELD=VARIABLE",
            help="Read a value from an environment variable.",
            show_default=False,
        ),
    ] = None,
    stdin: Annotated[
        bool, typer.Option("--stdin", help="Read the values from stdin: a JSON object, or the only value.")
    ] = False,
    field: Annotated[
        list[str] | None,
        typer.Option(
            "--field",
            metavar="FIELD=VALUE",
            help="A value given here, where others may see it.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the stored values, change the rest.")] = False,
    description: Annotated[
        str, typer.Option(metavar="TEXT", help="What the credential is for.", show_default=False)
    ] = "",
    adoptable: Annotated[
        bool,
        typer.Option(
            "--adoptable", help="Definitions that messages of other programs carry may use it, too."
        ),
    ] = False,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Add or change a credential. Values that no option gives are prompted for."""
    from msgspec import to_builtins

    from dalsegno.cli.output import emit
    from dalsegno.cli.views.credentials import as_object, print_unapproved, values_for, workflows_for

    workflows = workflows_for(workflow)
    values = None if keep else values_for(type, env or (), field or (), from_stdin=stdin)

    async def put(credentials: Credentials) -> None:
        info, is_new = await credentials.aput(
            name,
            type,
            values,
            workflows=workflows,
            hosts=host or (),
            sent_as=sent_as,
            description=description,
            adoptable=adoptable,
        )
        approved = [await credentials.aapprove(each) for each in definition or ()]
        if json:
            emit({**as_object(info), **({"approved": to_builtins(approved)} if approved else {})})
            return
        print(f"{'added' if is_new else 'changed'} credential '{name}'")
        for each in approved:
            print(f"approved {each.workflow}@{each.version}")
        print_unapproved(await credentials.adefinitions(), name)

    _with_credentials(Place(store, server), put, make_store=True)


@commands.command("ls")
def list_credentials(store: Store = None, server: Server = None, json: Json = False) -> None:
    """List credentials, without their values.

    With types, hosts and workflows, and the definitions that lack an approval.
    """
    from dalsegno.cli.output import emit
    from dalsegno.cli.views.credentials import as_object, listed_object, print_credentials, print_unapproved

    async def look(credentials: Credentials) -> None:
        found, listed = await credentials.alist(), await credentials.adefinitions()
        if json:
            emit(
                {
                    "credentials": [as_object(each) for each in found],
                    "definitions": [listed_object(each) for each in listed.items],
                }
            )
            return
        print_credentials(found)
        print_unapproved(listed)

    _with_credentials(Place(store, server), look)


@commands.command("rm")
def remove(name: Name, store: Store = None, server: Server = None, json: Json = False) -> None:
    """Remove a credential. Runs that need it fail from now on."""
    from dalsegno.cli.output import emit

    async def drop(credentials: Credentials) -> None:
        await credentials.aremove(name)
        emit({"removed": name}) if json else print(f"removed credential '{name}'")

    _with_credentials(Place(store, server), drop)


@commands.command("approve")
def approve(
    workflows: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORKFLOW[@VERSION]", help="Workflow to approve.", show_default=False),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Approve every current and aliased version that a credential lists, and end the grace period.",
        ),
    ] = False,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Approve workflows for the credentials that list them. What an admin deploys is approved already."""
    from msgspec import to_builtins

    from dalsegno.cli.errors import Refusal
    from dalsegno.cli.output import emit
    from dalsegno.cli.target.administration import APPROVING

    if bool(workflows) == everything:
        raise Refusal(
            "nothing to approve", "Name workflows, such as billing or billing@3, or give --all alone."
        )

    async def work(approving: Approving) -> None:
        credentials = approving.credentials
        hashes = [await approving.hash_of(each) for each in workflows or ()]
        if everything:
            listed = await credentials.adefinitions()
            hashes = [each.hash for each in listed.items if each.approval is None]
        approved = [await credentials.aapprove(each) for each in hashes]
        if everything:
            await credentials.aend_grace()
        if json:
            emit({"approved": to_builtins(approved)})
            return
        for each in approved:
            print(f"approved {each.workflow}@{each.version}")
        if not approved:
            print("everything that a credential lists is approved")

    APPROVING.use(Place(store, server), work)


@commands.command("withdraw")
def withdraw(
    workflow: Annotated[
        str,
        typer.Argument(
            metavar="WORKFLOW[@VERSION]", help="Workflow whose approval ends.", show_default=False
        ),
    ],
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Withdraw the approval of a definition. From now on its runs get no credential that lists workflows."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.target.administration import APPROVING

    async def work(approving: Approving) -> None:
        await approving.credentials.awithdraw(await approving.hash_of(workflow))
        emit({"withdrawn": workflow}) if json else print(f"withdrew the approval of {workflow}")

    APPROVING.use(Place(store, server), work)


@commands.command("rotate")
def rotate(store: Store = None, server: Server = None, json: Json = False) -> None:
    """Seal all stored secrets again with the first key. The command may be interrupted and run again.

    Exit code 1 if a credential cannot be read with any of the keys.
    """
    from dalsegno.cli.output import emit
    from dalsegno.cli.views.credentials import print_rotation

    async def turn(credentials: Credentials) -> None:
        done = await credentials.arotate()
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
            help="Insert it into this file, before the existing keys, instead of printing it.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Generate a key that seals credentials, and print it."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.views.credentials import advise
    from dalsegno.engine.secrets.keys import add_key
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
    """Let only admins deploy under a name.

    Also below it with /, and only admins change its aliases. Without NAME, list the protected names.
    """
    from dalsegno.cli.output import emit
    from dalsegno.cli.target.administration import PROTECTED_NAMES
    from dalsegno.cli.views.credentials import print_protected, protected_object

    async def work(names: ProtectedNames) -> None:
        if name is None:
            found = await names.alist()
            emit({"protected": [protected_object(each) for each in found]}) if json else print_protected(
                found
            )
            return
        made = await names.aprotect(name)
        emit(protected_object(made)) if json else print(f"protected '{name}'")

    PROTECTED_NAMES.use(Place(store, server), work, make_store=name is not None)


def unprotect(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The name or pattern, as it was protected.", show_default=False),
    ],
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """End the protection of a name. Names that a credential lists stay protected."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.target.administration import PROTECTED_NAMES

    async def work(names: ProtectedNames) -> None:
        await names.aunprotect(name)
        emit({"unprotected": name}) if json else print(f"'{name}' is no longer protected by an admin")

    PROTECTED_NAMES.use(Place(store, server), work)


def _with_credentials(
    place: Place, work: Callable[[Credentials], Awaitable[None]], *, make_store: bool = False
) -> None:
    from dalsegno.cli.target.administration import CREDENTIALS

    CREDENTIALS.use(place, work, make_store=make_store)
