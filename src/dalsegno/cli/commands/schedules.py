"""``schedule``: workflows that start by cron or at intervals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from dalsegno.cli.group import command_group
from dalsegno.cli.options import AppName, Input, Json, Server, Store, Tags

if TYPE_CHECKING:
    from dalsegno.cli.target.schedules import ScheduleApi, Schedules

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.", show_default=False)]

commands = command_group(
    "schedule", "Start workflows by cron or at intervals. Schedules fire wherever `dalsegno worker` runs."
)


def register(app: typer.Typer) -> None:
    app.add_typer(commands)


@commands.command("add")
def add(
    name: Name,
    workflow: Annotated[
        str,
        typer.Option(
            "--workflow",
            "-w",
            metavar="NAME[@VERSION]",
            help="Workflow to start; a version or alias is resolved at each start.",
            show_default=False,
        ),
    ],
    cron: Annotated[
        str | None,
        typer.Option(
            metavar="LINE",
            help="Cron line: minute, hour, day, month, weekday, e.g. '0 2 * * *'.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Interval instead of --cron: 15m, 90s.", show_default=False),
    ] = None,
    timezone: Annotated[str, typer.Option(metavar="ZONE", help="IANA name of the time zone.")] = "UTC",
    input: Input = None,
    missed: Annotated[
        str,
        typer.Option(
            metavar="POLICY", help="Times that passed with no scheduler running: skip, once or all."
        ),
    ] = "skip",
    overlap: Annotated[
        str, typer.Option(metavar="POLICY", help="While the previous execution runs: allow or skip.")
    ] = "allow",
    grace: Annotated[
        str, typer.Option(metavar="DURATION", help="A start later than this counts as missed.")
    ] = "60s",
    catch_up: Annotated[int, typer.Option(help="Maximum number of missed times to catch up on.")] = 1000,
    jitter: Annotated[str, typer.Option(metavar="DURATION", help="Delay each start by up to this.")] = "0s",
    start: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="No start before: 2030-01-31T09:00.", show_default=False),
    ] = None,
    end: Annotated[
        str | None, typer.Option(metavar="TIME", help="No start after.", show_default=False)
    ] = None,
    tag: Tags = None,
    priority: Annotated[int, typer.Option(help="Higher priorities run first.")] = 0,
    replace: Annotated[bool, typer.Option("--replace", help="Change the schedule if it exists.")] = False,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Accept a workflow that is not deployed yet.")
    ] = False,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Add a schedule, or change one with --replace."""
    from typing import cast

    from dalsegno.cli.documents import read_payload, read_tags
    from dalsegno.cli.errors import Refusal
    from dalsegno.cli.output import emit
    from dalsegno.cli.views.schedules import as_object, print_schedule
    from dalsegno.core.schedules.spec import MissedPolicy, OverlapPolicy
    from dalsegno.engine.schedules import NewSchedule

    if (cron is None) == (every is None):
        raise Refusal(
            "a schedule needs either --cron or --every", "Write --cron '0 2 * * *', or --every 15m."
        )
    new = NewSchedule(
        name=name,
        timing=cron if cron is not None else f"every {every}",
        workflow=workflow,
        input=read_payload(input),
        timezone=timezone,
        missed=cast("MissedPolicy", missed),
        overlap=cast("OverlapPolicy", overlap),
        grace=grace,
        catch_up=catch_up,
        jitter=jitter,
        start=start,
        end=end,
        tags=read_tags(tag),
        priority=priority,
    )

    async def create(api: ScheduleApi) -> None:
        schedules = api.schedules
        view = await schedules.add(new, replace=replace, allow_unknown=allow_unknown)
        emit(as_object(view)) if json else print_schedule(view, (), schedules.stack.clock.now())

    _with_schedules(create, store, server, app, make_store=True)


@commands.command("ls")
def list_schedules(store: Store = None, server: Server = None, json: Json = False) -> None:
    """List schedules with their next and latest times."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.views.schedules import as_object, print_schedules

    async def look(api: ScheduleApi) -> None:
        schedules = api.schedules
        views = await schedules.list()
        if json:
            emit({"schedules": [as_object(view) for view in views]})
        else:
            print_schedules(views, schedules.stack.clock.now())

    _with_schedules(look, store, server)


@commands.command("show")
def show(
    name: Name,
    times: Annotated[
        int, typer.Option("--times", "-n", min=0, max=1000, help="Number of next times to show.")
    ] = 5,
    store: Store = None,
    server: Server = None,
    json: Json = False,
) -> None:
    """Show a schedule: workflow, next times, latest runs."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.views.schedules import as_object, print_schedule, read_schedule, runs_as_objects

    async def look(api: ScheduleApi) -> None:
        schedules = api.schedules
        view, runs = await read_schedule(schedules, name, times)
        if json:
            emit({**as_object(view), "runs": runs_as_objects(runs)})
        else:
            print_schedule(view, runs, schedules.stack.clock.now())

    _with_schedules(look, store, server)


@commands.command("pause")
def pause(name: Name, store: Store = None, server: Server = None, json: Json = False) -> None:
    """Pause a schedule. It does not fire until `schedule resume`."""
    _act(name, "paused", lambda schedules: schedules.pause(name), store, server, json=json)


@commands.command("resume")
def resume(name: Name, store: Store = None, server: Server = None, json: Json = False) -> None:
    """Resume a paused schedule. Times that passed meanwhile count as missed."""
    _act(name, "active", lambda schedules: schedules.resume(name), store, server, json=json)


@commands.command("rm")
def remove(name: Name, store: Store = None, server: Server = None, json: Json = False) -> None:
    """Remove a schedule. Executions that it started continue."""
    _act(name, "removed", lambda schedules: schedules.remove(name), store, server, json=json)


@commands.command("trigger")
def trigger(
    name: Name, store: Store = None, server: Server = None, app: AppName = None, json: Json = False
) -> None:
    """Start a schedule's workflow now. Its times do not change. Prints the execution's id."""
    from dalsegno.cli.output import emit, reference_names

    async def start(api: ScheduleApi) -> None:
        execution = await api.start_now(name)
        emit({"schedule": name, **reference_names(execution)}) if json else print(execution)

    _with_schedules(start, store, server, app)


def _act(
    name: str,
    state: str,
    act: Callable[[Schedules], Awaitable[None]],
    store: str | None,
    server: str | None,
    *,
    json: bool,
) -> None:
    from dalsegno.cli.output import emit

    async def run(api: ScheduleApi) -> None:
        await act(api.schedules)
        emit({"schedule": name, "state": state}) if json else print(f"{name}: {state}")

    _with_schedules(run, store, server)


def _with_schedules(
    work: Callable[[ScheduleApi], Awaitable[None]],
    store: str | None,
    server: str | None,
    app: str | None = None,
    *,
    make_store: bool = False,
) -> None:
    import asyncio

    from dalsegno.cli.target.schedules import opened_schedules
    from dalsegno.cli.target.target import where_to
    from dalsegno.cli.views.schedules import with_own_hint

    where = where_to(store, server, app)

    async def run() -> None:
        async with opened_schedules(where, create=make_store) as found:
            with with_own_hint():
                await work(found)

    asyncio.run(run())
