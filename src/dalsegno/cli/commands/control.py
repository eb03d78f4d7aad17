"""``trigger``, ``signal``, ``ask``, ``pause``, ``cancel``, ``terminate`` and ``move``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.options import AppName, ExecutionId, Json, Reason, Server, Store

if TYPE_CHECKING:
    from dalsegno.cli.target.target import WorkflowApi
    from dalsegno.engine.operations.moves import Moved, MoveReport


def register(app: typer.Typer) -> None:
    app.command("trigger")(trigger)
    app.command("signal")(signal)
    app.command("ask")(ask)
    app.command("pause")(pause)
    app.command("cancel")(cancel)
    app.command("terminate")(terminate)
    app.command("move")(move)


def trigger(
    execution: ExecutionId,
    input: Annotated[
        str | None,
        typer.Option(
            "--input",
            "-i",
            metavar="JSON",
            help="Input that replaces the submitted one: JSON, @FILE, or - for stdin.",
            show_default=False,
        ),
    ] = None,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Start an execution that was submitted or delayed. It has no effect on one that has started."""
    from dalsegno.cli.documents import read_payload
    from dalsegno.engine.starting.pending import UNCHANGED

    given = UNCHANGED if input is None else read_payload(input)
    _command(
        execution, store, server, lambda client, found: client.trigger(found, given), "triggered", json=json
    )


def signal(
    execution: ExecutionId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The signal's name.", show_default=False)],
    payload: Annotated[
        str | None,
        typer.Option(
            "--payload",
            "-p",
            metavar="JSON",
            help="The signal's payload: JSON, @FILE, or - for stdin.",
            show_default=False,
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="TEXT",
            help="Idempotency key: a second signal with the same id has no effect.",
            show_default=False,
        ),
    ] = None,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Send a signal to an execution. Signals are kept, in order per name, until the workflow takes them."""
    from dalsegno.cli.documents import read_payload
    from dalsegno.cli.live.script_progress import earlier_event, kept_for_later, waited_signals

    carried = read_payload(payload, "payload")

    async def send(client: WorkflowApi, found: str) -> str:
        waited = await waited_signals(client, found)  # read first: afterwards the workflow may have taken it
        before = await earlier_event(client, found, id) if id is not None else None
        await client.signal(found, name, carried, id)
        if before is not None:
            return f"signal '{name}' with the id '{id}' was sent to {found} before (event {before}): nothing changed"
        return f"sent signal '{name}' to {found}{kept_for_later(name, waited)}"

    _command(execution, store, server, send, json=json)


def ask(
    execution: ExecutionId,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The request's name.", show_default=False)],
    payload: Annotated[
        str | None,
        typer.Argument(
            metavar="[JSON]", help="The request's payload: JSON, @FILE, or - for stdin.", show_default=False
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(
            "--timeout",
            metavar="DURATION",
            help="How long to wait for the answer: seconds, or text such as 30s.  [default: no limit]",
            show_default=False,
        ),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="TEXT",
            help="Idempotency key: the same id again is the same request, and gets the same answer.",
            show_default=False,
        ),
    ] = None,
    store: Store = None,
    server: Server = None,
) -> None:
    """Ask a running workflow, and print its answer as JSON.

    Scripts and Python workflows answer, while a worker or server runs them. A refused request is an error.
    """
    import asyncio

    from dalsegno.cli.documents import read_payload
    from dalsegno.cli.errors import Refusal
    from dalsegno.cli.output import emit
    from dalsegno.cli.target.target import find_execution, reached, where_to
    from dalsegno.engine.options import read_duration

    carried = read_payload(payload, "payload")
    seconds = read_duration(timeout, "--timeout") if timeout is not None else None

    async def run() -> None:
        async with reached(where_to(store, server)) as client:
            found = await find_execution(client, execution)
            try:
                emit(await client.ask(found, name, carried, id, seconds))
            except TimeoutError as error:
                raise Refusal(str(error)) from None

    asyncio.run(run())


def pause(execution: ExecutionId, store: Store = None, server: Server = None, json: Json = False) -> None:
    """Pause an execution: running steps finish, none start. `resume` ends the pause."""
    _command(execution, store, server, lambda client, found: client.pause(found), "paused", json=json)


def end_pause(execution: str, store: str | None, server: str | None, *, json: bool) -> None:
    """End a pause and run nothing here."""
    from dalsegno.cli.errors import Refusal

    async def end(client: WorkflowApi, found: str) -> None:
        state = (await client.status(found)).state
        if state != "PAUSED":
            raise Refusal(f"execution {found} is not paused: it is {state}")
        await client.resume(found)

    _command(execution, store, server, end, "resumed", json=json)


def cancel(
    execution: ExecutionId,
    reason: Reason = None,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Cancel an execution; its clean-up runs first.

    Scripts and Python workflows clean up; graphs end at once.
    """

    async def ask(client: WorkflowApi, found: str) -> str | None:
        await client.cancel(found, reason)
        state = (await client.status(found)).state
        return None if state == "CANCELLED" else f"asked {found} to end; it cleans up first"

    _command(execution, store, server, ask, "cancelled", json=json)


def terminate(
    execution: ExecutionId,
    reason: Reason = None,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """End an execution at once, without clean-up. `dalsegno dead` lists clean-ups that were left undone."""
    _command(
        execution,
        store,
        server,
        lambda client, found: client.terminate(found, reason),
        "terminated",
        json=json,
    )


def move(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="A workflow, with --from; or an execution: its id, its first characters, or `last`.",
            show_default=False,
        ),
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="VERSION",
            help="The new version: a number, an alias or 'latest'.",
            show_default=False,
        ),
    ],
    before: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="VERSION", help="Move all executions of this version.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check which could be moved; change nothing.")
    ] = False,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Let executions that have not ended go on with another version.

    They keep their ids. What would be doubtful is refused, with the lines of both versions. Exit code 1 if an execution
    was refused. An interrupted call can be repeated.
    """
    import asyncio

    from dalsegno.cli.target.target import find_execution, reached, where_to
    from dalsegno.cli.views.moves import show_moved, show_progress, show_report
    from dalsegno.engine.operations.moves import move_all

    where = where_to(store, server, app)

    async def one() -> Moved:
        async with reached(where) as client:
            return await client.move(await find_execution(client, target), to, dry_run=dry_run)

    async def many(old: str) -> MoveReport:
        async with reached(where) as client:
            return await move_all(
                lambda cursor: client.move_some(target, old, to, dry_run=dry_run, cursor=cursor),
                show_progress,
            )

    if before is None:
        show_moved(asyncio.run(one()), json=json)
        return
    report = asyncio.run(many(before))
    show_report(report, json=json)
    raise typer.Exit(1 if report.refusals else 0)


def _command(
    named: str,
    store: str | None,
    server: str | None,
    act: Callable[[WorkflowApi, str], Awaitable[str | None]],
    done: str = "",
    *,
    json: bool,
) -> None:
    """Run ``act`` on an execution. It may return the text to print instead of ``done`` and the execution's id."""
    import asyncio

    from dalsegno.cli.output import emit, execution_names
    from dalsegno.cli.target.target import find_execution, reached, where_to

    async def run() -> None:
        async with reached(where_to(store, server)) as client:
            found = await find_execution(client, named)
            said = await act(client, found)
            view = await client.status(found)
        if json:
            emit(execution_names(found, view.state))
        else:
            print(said or f"{done} {found}")

    asyncio.run(run())
