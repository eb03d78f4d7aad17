"""``task``: pending and running tasks, settled by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from dalsegno.cli.group import command_group
from dalsegno.cli.options import AppName, Json, Limit, Place, Reason, Server, Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dalsegno.cli.target.operations import OpenTasks

TaskId: TypeAlias = Annotated[
    str, typer.Argument(metavar="ID", help="The id that `dalsegno task ls` shows.", show_default=False)
]
By: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="NAME",
        help="Name of the person who does it. Default: the user of this machine.",
        show_default=False,
    ),
]

commands = command_group("task", "Pending and running tasks and nodes: list, settle by hand.")


def register(app: typer.Typer) -> None:
    app.add_typer(commands)


@commands.command("ls")
def list_tasks(
    execution: Annotated[
        str | None,
        typer.Argument(metavar="EXECUTION", help="Only tasks of this execution.", show_default=False),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option("--queue", metavar="NAME", help="Only tasks of this queue.", show_default=False),
    ] = None,
    limit: Limit = 20,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """List pending and running tasks and nodes. Those of the newest execution come first."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.target.operations import OPEN_TASKS
    from dalsegno.cli.views.operations import as_object, print_tasks

    found = OPEN_TASKS.use(
        Place(store, server, app), lambda tasks: tasks.alist(execution, queue=queue, limit=limit)
    )
    if json:
        emit({"tasks": [as_object(task) for task in found]})
    else:
        print_tasks(found)


@commands.command("show")
def show(
    task: TaskId, store: Store = None, server: Server = None, app: AppName = None, json: Json = False
) -> None:
    """Show a task, its input and what it must return."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.target.operations import OPEN_TASKS
    from dalsegno.cli.views.operations import as_object, print_task

    found = OPEN_TASKS.use(Place(store, server, app), lambda tasks: tasks.aget(task))
    if json:
        emit(as_object(found))
    else:
        print_task(found)


@commands.command("complete")
def complete(
    task: TaskId,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="JSON",
            help="The task's output: JSON, @FILE, or - for stdin. Default: null.",
            show_default=False,
        ),
    ] = None,
    reason: Reason = None,
    by: By = None,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Complete a task by hand. A worker that holds it is refused from now on."""
    from dalsegno.cli.documents import read_payload
    from dalsegno.cli.views.operations import person

    carried = read_payload(output, "output")
    _settle(
        Place(store, server, app),
        task,
        "completed",
        lambda tasks: tasks.acomplete(task, carried, by=person(by), reason=reason),
        json=json,
    )


@commands.command("fail")
def fail(
    task: TaskId,
    message: Annotated[str, typer.Option("--message", "-m", metavar="TEXT", help="The error message.")],
    retry: Annotated[
        bool,
        typer.Option(
            "--retry/--final",
            help="Apply the retry policy, as after a failure of the task itself, or make the failure final.",
        ),
    ] = False,
    reason: Reason = None,
    by: By = None,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Fail a task by hand. A worker that holds it is refused from now on."""
    from dalsegno.cli.views.operations import person

    _settle(
        Place(store, server, app),
        task,
        "failed",
        lambda tasks: tasks.afail(task, message, retry=retry, by=person(by), reason=reason),
        json=json,
    )


def _handles(verb: Literal["skip", "requeue"], done: str, help: str) -> None:
    def handle(
        task: TaskId,
        reason: Reason = None,
        by: By = None,
        store: Store = None,
        server: Server = None,
        app: AppName = None,
        json: Json = False,
    ) -> None:
        from dalsegno.cli.views.operations import person

        def act(tasks: OpenTasks) -> Awaitable[Any]:
            work = tasks.askip if verb == "skip" else tasks.arequeue
            return work(task, by=person(by), reason=reason)

        _settle(Place(store, server, app), task, done, act, json=json)

    commands.command(verb, help=help)(handle)


_handles(
    "skip",
    "skipped",
    "Continue without a task. A node is SKIPPED, with what only it leads to; a script or a Python workflow gets null.",
)
_handles(
    "requeue",
    "requeued",
    "Take a task from its worker and offer it again. One that waits for its next attempt runs at once.",
)


def _settle(
    place: Place, task: str, done: str, work: Callable[[OpenTasks], Awaitable[Any]], *, json: bool
) -> None:
    from dalsegno.cli.output import emit
    from dalsegno.cli.target.operations import OPEN_TASKS

    OPEN_TASKS.use(place, work)
    if json:
        emit({"id": task, "state": done})
    else:
        print(f"{done} {task}")
