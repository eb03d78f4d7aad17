"""``bench``, ``dead``, ``doctor``, ``limits``, ``migrate``, ``workers`` and ``backup``: operation of a store.

The benchmarks are imported only when ``bench`` runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from dalsegno.cli.group import command_group
from dalsegno.cli.options import AppName, Json, Limit, Place, Quiet, Server, Store

if TYPE_CHECKING:
    from dalsegno.cli.target.administration import Limits
    from dalsegno.cli.target.operations import KeptMessages, Letters
    from dalsegno.engine.operations.dead_letters import DeadLetter

MODULE = "dalsegno.bench.cli"
_FILE = Path(__file__).parents[2] / "bench" / "cli.py"


def register_bench(app: typer.Typer) -> None:
    if _FILE.exists():
        pass_through = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}
        app.command("bench", context_settings=pass_through)(bench)


def bench(context: typer.Context) -> None:
    """Benchmark this machine and the store."""
    module = import_module(MODULE)
    program = getattr(module, "app", None)
    if program is None:
        program = typer.Typer(rich_markup_mode=None, add_completion=False)
        module.register(program)
    arguments = ["--help" if each == "-h" else each for each in context.args]
    ended = program(arguments, prog_name="dalsegno bench", standalone_mode=False)
    raise typer.Exit(ended if isinstance(ended, int) else 0)


LetterId = Annotated[
    str, typer.Argument(metavar="ID", help="The id that `dalsegno dead ls` shows.", show_default=False)
]

MessageId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The message's id, as `dalsegno dead ls` shows it.", show_default=False
    ),
]

dead_commands = command_group("dead", "Stuck work: inspect, retry, drop.")


def register_dead(app: typer.Typer) -> None:
    app.add_typer(dead_commands)


@dead_commands.command("ls")
def list_dead(
    limit: Limit = 20, store: Store = None, server: Server = None, app: AppName = None, json: Json = False
) -> None:
    """List stuck work: dead letters and system failures.

    These are orders between executions that cannot be delivered, steps that no process can run, executions that are
    stuck, clean-ups that did not end, and executions that failed for a reason of the system. With a broker they are
    followed by messages of other programs that could not be taken in.
    """
    from time import time

    from dalsegno.cli.output import emit
    from dalsegno.cli.target.operations import LETTERS
    from dalsegno.cli.target.target import where_to
    from dalsegno.cli.views.operations import dead_letter_object as as_object
    from dalsegno.cli.views.operations import message_object, print_letters, print_messages

    async def both(letters: Letters) -> tuple[list[DeadLetter], KeptMessages | None]:
        return await letters.alist(limit), await letters.amessages(limit)

    found, messages = LETTERS.use(Place(store, server, app), both)
    if json:
        kept = {} if messages is None else {"messages": [message_object(each) for each in messages.found]}
        emit({"dead": [as_object(letter) for letter in found], **kept})
        return
    command = where_to(store, server, app).command
    if found or messages is None or not messages.found:
        print_letters(found, command, time())
    if messages is not None:
        print_messages(messages, command, time())


@dead_commands.command("show")
def show_message(
    letter: MessageId, store: Store = None, server: Server = None, app: AppName = None, json: Json = False
) -> None:
    """Show a message that a broker keeps."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.target.operations import LETTERS
    from dalsegno.cli.views.operations import message_object, print_message

    kept = LETTERS.use(Place(store, server, app), lambda letters: letters.amessage(letter))
    if json:
        emit(message_object(kept, whole=True))
    else:
        print_message(kept)


@dead_commands.command("requeue")
def requeue(
    letter: MessageId, store: Store = None, server: Server = None, app: AppName = None, json: Json = False
) -> None:
    """Send a message that a broker keeps again.

    It goes where it came from and keeps its identity: what it has caused already is not caused again.
    """
    from dalsegno.cli.output import emit
    from dalsegno.cli.target.operations import LETTERS

    kept = LETTERS.use(Place(store, server, app), lambda letters: letters.arequeue(letter))
    if json:
        emit({"id": letter, "server": kept.server, "source": kept.message.source})
    else:
        print(f"sent to {kept.message.source} again")


@dead_commands.command("retry")
def retry(
    letter: LetterId,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    json: Json = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before a failed execution starts over.")
    ] = False,
) -> None:
    """Retry an entry.

    A failed execution is retried, and an unfinished clean-up continued, as a new execution; the running workers retry
    everything else.
    """
    from dalsegno.cli.output import emit
    from dalsegno.cli.target.operations import LETTERS
    from dalsegno.cli.views.operations import ask_before_retry

    place = Place(store, server, app)
    if not yes:
        ask_before_retry(letter, place)
    execution = LETTERS.use(place, lambda letters: letters.aretry(letter)).id
    if json:
        emit({"id": letter, "execution": execution})
    else:
        print(f"tried again: execution {execution}")


@dead_commands.command("drop")
def drop(
    letter: LetterId, store: Store = None, server: Server = None, app: AppName = None, json: Json = False
) -> None:
    """Drop an entry.

    An order is not carried out, an execution is cancelled, a failed execution is no longer listed.
    """
    from dalsegno.cli.output import emit
    from dalsegno.cli.target.operations import LETTERS

    execution = LETTERS.use(Place(store, server, app), lambda letters: letters.adrop(letter)).id
    if json:
        emit({"id": letter, "execution": execution})
    else:
        print(f"dropped {letter}")


def register_doctor(app: typer.Typer) -> None:
    app.command("doctor")(doctor)


def doctor(store: Store = None, json: Json = False) -> None:
    """Check this machine and the store. Exit code 1 if a check fails."""
    import asyncio

    from dalsegno.cli.doctor import as_object, examine, print_checks
    from dalsegno.cli.output import emit
    from dalsegno.cli.target.target import make_app

    checks = asyncio.run(examine(make_app(store)))
    if json:
        emit(as_object(checks))
    else:
        print_checks(checks)
    raise typer.Exit(1 if any(check.status == "fail" for check in checks) else 0)


T = TypeVar("T")

Key = Annotated[str, typer.Argument(metavar="KEY", help="The limit's key, e.g. gmail.", show_default=False)]

limits_commands = command_group("limits", "Concurrency and rate limits, by key.")


def register_limits(app: typer.Typer) -> None:
    app.add_typer(limits_commands)


@limits_commands.command("ls")
def list_limits(
    limit: Limit = 20, store: Store = None, server: Server = None, app: AppName = None, json: Json = False
) -> None:
    """List limits and their use.

    Keys with a limit, with slots in use, or with steps that wait.
    """
    from dalsegno.cli.output import emit
    from dalsegno.cli.views.operations import limit_object as as_object
    from dalsegno.cli.views.operations import print_limits

    found = _asked(Place(store, server, app), lambda limits: limits.alist(limit))
    if json:
        emit({"limits": [as_object(view) for view in found]})
    else:
        print_limits(found)


@limits_commands.command("set")
def set_limit(
    key: Key,
    concurrency: Annotated[
        int | None, typer.Option(help="Maximum that run at once; 0: nothing starts.", show_default=False)
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="Maximum that start in a period: 10/s, 100/m.", show_default=False)
    ] = None,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """Set a limit that overrides those of definitions. It applies to all workers at once; running steps continue."""
    from dalsegno.cli.output import emit
    from dalsegno.cli.views.operations import limit_object as as_object
    from dalsegno.cli.views.operations import limit_text

    view = _asked(
        Place(store, server, app), lambda limits: limits.aset(key, concurrency=concurrency, rate=rate)
    )
    if json:
        emit(as_object(view))
    else:
        print(f"{key}: {limit_text(view)}; {view.in_use:,} in use, {view.waiting:,} waiting")


@limits_commands.command("rm")
def remove_limit(
    key: Key, store: Store = None, server: Server = None, app: AppName = None, json: Json = False
) -> None:
    """Remove a limit. The limits of definitions apply again."""
    from dalsegno.cli.output import emit
    from dalsegno.errors import NotFound

    try:
        _asked(Place(store, server, app), lambda limits: limits.aremove(key))
    except NotFound as error:
        raise NotFound(f"{error}; `dalsegno limits ls` lists them") from None
    if json:
        emit({"key": key, "removed": True})
    else:
        print(f"{key}: as definitions say")


def _asked(place: Place, ask: Callable[[Limits], Awaitable[T]]) -> T:
    from dalsegno.cli.target.administration import LIMITS

    return LIMITS.use(place, ask)


def register_migrate(app: typer.Typer) -> None:
    app.command("migrate")(migrate)


def migrate(
    store: Store = None,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit code 1 if a migration is due.")
    ] = False,
    finish: Annotated[
        bool,
        typer.Option("--finish", help="Also remove what only older versions need; stop those first."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --finish: even while processes of older versions run.")
    ] = False,
    json: Json = False,
) -> None:
    """Bring the store's schema up to date.

    Processes that run workflows do the same when they start, except for --finish. On PostgreSQL --finish is refused
    while workers of older versions are alive or older processes are connected.
    """
    import asyncio

    from dalsegno.adapters.urls import shown_url
    from dalsegno.cli.migrate import bring_up_to_date, refuse_odd_options
    from dalsegno.cli.output import emit
    from dalsegno.cli.target.target import make_app

    refuse_odd_options(check=check, finish=finish, force=force)
    url = make_app(store).url
    state = asyncio.run(bring_up_to_date(url, check=check, finish=finish, force=force))
    if json:
        emit({"store": shown_url(url), "before": state.before, "schema": state.after, "newest": state.newest})
    else:
        typer.echo(f"{shown_url(url)}: {state.sentence(finish=finish)}")
    raise typer.Exit(1 if check and state.after < state.newest else 0)


def register_workers(app: typer.Typer) -> None:
    app.command("workers")(list_workers)


def list_workers(store: Store = None, server: Server = None, json: Json = False) -> None:
    """List worker processes and remote workers.

    With version, queues, start time, what they run, and whether they are alive.
    """
    from dalsegno.cli.output import emit
    from dalsegno.cli.target.operations import WORKERS
    from dalsegno.cli.views.operations import print_workers
    from dalsegno.cli.views.operations import worker_object as as_object

    found, now = WORKERS.use(Place(store, server), lambda workers: workers.all())
    if json:
        emit({"workers": [as_object(worker) for worker in found]})
    else:
        print_workers(found, now)


def register_backup(app: typer.Typer) -> None:
    app.command("backup")(backup)


def backup(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The copy; an existing file is not overwritten.")
    ],
    store: Store = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Copy a SQLite store to FILE while it is in use.

    The copy is verified. It holds the state of the moment at which it began. A PostgreSQL store is refused, with the
    pg_dump command to run instead.
    """
    import time

    from dalsegno.cli.migrate import Progress, copy, print_missing_key
    from dalsegno.cli.output import emit, span
    from dalsegno.cli.target.target import make_app

    url = make_app(store).url
    began = time.monotonic()
    made = copy(url, file, Progress(quiet=quiet or json))
    seconds = time.monotonic() - began
    if json:
        copied = {"store": url, "file": str(made.file), "bytes": made.bytes, "schema": made.schema}
        emit({**copied, "executions": made.executions, "seconds": round(seconds, 3)})
        return
    typer.echo(
        f"{made.file}: {made.bytes / 1e6:.1f} MB, schema {made.schema}, {made.executions:,} executions,"
        f" verified, in {span(seconds)}"
    )
    print_missing_key(url)
