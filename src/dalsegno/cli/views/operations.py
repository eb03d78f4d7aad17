"""Alerts, dead letters, API keys, limits, workers and open tasks, as data and on a terminal."""

from __future__ import annotations

import asyncio
import base64
import getpass
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
from rich.table import Table
from rich.text import Text

from dalsegno.admin.alerts import Alert
from dalsegno.admin.keys import ALL_QUEUES, GRANTS, NAMES, Key, Quotas, Scope, read_quotas
from dalsegno.cli.errors import Refusal
from dalsegno.cli.next_command import Command
from dalsegno.cli.options import Place
from dalsegno.cli.output import STYLES, fields_of, iso, moment, print_table, signs_for, span, stderr, stdout
from dalsegno.cli.run.launch import ask_before_starting_over
from dalsegno.cli.target.operations import KeptMessage, KeptMessages
from dalsegno.cli.target.target import reached, where_to
from dalsegno.engine.operations.dead_letters import DeadLetter
from dalsegno.engine.operations.manual_tasks import OpenTask
from dalsegno.engine.worker.directory import WorkerSeen
from dalsegno.model.limits import LimitView, show_rate


def url_for(mail: Sequence[str], variable: str | None, *, from_stdin: bool) -> str | None:
    """Return the receiver's URL; None if the alert goes by mail."""
    if variable is not None:
        if variable not in os.environ:
            raise Refusal(f"the variable {variable} with the URL is not set", "Export it first.")
        return os.environ[variable]
    if from_stdin:
        return sys.stdin.read().strip()
    if not mail:
        raise Refusal("no receiver", "Give --mail ADDRESS, or a URL by --env or --stdin.")
    return None


def alert_object(alert: Alert) -> dict[str, Any]:
    return fields_of(alert, "id", "workflow", "target", "every", "enabled", "created_at", "signed")


def print_secret(secret: str) -> None:
    print(f"secret, which signs its messages and is shown this once: {secret}")


def print_alerts(found: Sequence[Alert]) -> None:
    console = stdout()
    if not found:
        console.print("no alerts; `dalsegno alerts add ID` adds one", style="dim", markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("id", "workflow", "goes to", "every", "state", "signed"):
        table.add_column(title)
    for each in found:
        state = "enabled" if each.enabled else "disabled"
        signed = "yes" if each.signed else "no"
        table.add_row(each.id, each.workflow or "all", each.target, f"{each.every:g} s", state, signed)
    print_table(console, table)


def dead_letter_object(letter: DeadLetter) -> dict[str, Any]:
    return fields_of(letter, "id", "kind", "execution", "workflow", "reason", "code", "since", "tries")


def ask_before_retry(letter: str, place: Place) -> None:
    """Ask for confirmation if the retry starts a failed script or Python workflow over."""
    kind, _, execution = letter.partition(":")
    if kind != "execution":
        return

    async def ask() -> None:
        async with reached(where_to(place.store, place.server, place.app)) as client:
            await ask_before_starting_over(client, await client.status(execution))

    asyncio.run(ask())


def print_letters(letters: Sequence[DeadLetter], command: Command, now: float) -> None:
    """Print each letter with its reason and the command that retries it below: both are long."""
    console = stdout()
    if not letters:
        console.print("no dead letters")
        return
    for letter in letters:
        console.print(Text(letter.id, "bold"), soft_wrap=True)
        since = f"since {moment(letter.since)}, {span(now - letter.since)} ago"
        about = f"  {letter.workflow or 'unknown workflow'}, {since}"
        console.print(Text(f"{about}, {letter.code}" if letter.code else about, "dim"), soft_wrap=True)
        console.print(Text(f"  {letter.reason}"), soft_wrap=True)
        console.print(Text(f"  {command.line('dead retry', letter.id)}"), soft_wrap=True)
    more = "`dalsegno dead drop ID` gives one up; `dalsegno show EXECUTION` shows its execution"
    console.print(more, style="dim", markup=False, soft_wrap=True)


def message_object(kept: KeptMessage, *, whole: bool = False) -> dict[str, Any]:
    message = kept.message
    about = {
        "id": message.id,
        "server": kept.server,
        "source": message.source,
        "reason": message.reason,
        "code": message.code,
        "at": iso(message.at),
        "bytes": len(message.body),
    }
    return about | {"headers": dict(message.headers), **_body(message.body)} if whole else about


def _body(body: bytes) -> dict[str, str]:
    """Return the body as text, or encoded if it is none."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def print_messages(messages: KeptMessages, command: Command, now: float) -> None:
    console = stdout()
    for problem in messages.problems:
        console.print(Text(problem, "yellow"), soft_wrap=True)
    for kept in messages.found:
        message = kept.message
        console.print(Text(message.id, "bold"), soft_wrap=True)
        since = (
            f"since {moment(message.at)}, {span(now - message.at)} ago" if message.at else "since long ago"
        )
        about = f"  a message in {kept.server}, from {message.source}, {since}, {message.code}"
        console.print(Text(about, "dim"), soft_wrap=True)
        console.print(Text(f"  {message.reason}"), soft_wrap=True)
        console.print(Text(f"  {command.line('dead requeue', message.id)}"), soft_wrap=True)
    if messages.found:
        console.print("`dalsegno dead show ID` shows a message", style="dim", markup=False, soft_wrap=True)


def print_message(kept: KeptMessage) -> None:
    """Print a message with its headers. Its body comes last, as it is, if it is text."""
    console = stdout()
    for name, value in message_object(kept, whole=True).items():
        if name not in {"headers", "body"}:
            console.print(Text(f"{name:8}", "dim"), Text(str(value)), soft_wrap=True)
    for name, value in kept.message.headers.items():
        console.print(Text(f"{name}: {value}"), soft_wrap=True)
    if "body" in (body := _body(kept.message.body)):
        console.print(Text(body["body"]), soft_wrap=True)


DEFAULT = "default"
"""The word that resets a quota to the server's default."""


def read_scopes(given: Sequence[str]) -> tuple[Scope, ...]:
    """Return the scopes: an option may be repeated, and may hold several words with commas."""
    words = [word.strip() for text in given for word in text.split(",")]
    wrong = next((word for word in words if word not in GRANTS), None)
    if wrong is not None:
        raise Refusal(f"there is no scope '{wrong}'", f"Scopes: {', '.join(GRANTS)}.")
    return cast("tuple[Scope, ...]", tuple(words))


def read_quota_options(given: Mapping[str, str | None]) -> dict[str, int | None]:
    """Return the quotas that were given: a number, 0 for no limit, or the word for the server's default."""
    return {name: _read_quota(name, text) for name, text in given.items() if text is not None}


def _read_quota(name: str, text: str) -> int | None:
    if text == DEFAULT:
        return None
    if text.replace("_", "").replace(",", "").isdecimal():
        return int(text.replace("_", "").replace(",", ""))
    option = name.replace("_", "-")
    raise Refusal(
        f"--{option} {text}: that is not a number", f"Write a number, 0 for no limit, or '{DEFAULT}'."
    )


def read_default_quotas(given: Sequence[str]) -> Quotas:
    """Parse ``starts-per-minute=600``, repeatable."""
    found: dict[str, int | None] = {}
    for text in given:
        name, _, number = text.partition("=")
        found[name.strip().replace("-", "_")] = _read_quota("quota", number.strip())
    return read_quotas(found)


def key_object(key: Key) -> dict[str, Any]:
    names = (
        "id",
        "name",
        "scopes",
        "created_at",
        "created_by",
        "expires_at",
        "revoked_at",
        "used_at",
        "queues",
    )
    return {**fields_of(key, *names), "quotas": _set_quotas(key)}


def _set_quotas(key: Key) -> dict[str, int]:
    return {name: value for name in NAMES if (value := getattr(key.quotas, name)) is not None}


def print_new_key(key: Key, text: str) -> None:
    """Print the key alone on stdout, so that it can be piped to where it is kept."""
    until = f", valid until {moment(key.expires_at)}" if key.expires_at is not None else ""
    print(text)
    console = stderr()
    queues = f" for {_queues(key)}" if key.queues is not None else ""
    console.print(f"key '{key.name}' with {', '.join(key.scopes)}{queues}{until}", markup=False)
    console.print("It is shown this once. Send it as: Authorization: Bearer ds_…", style="dim", markup=False)


def print_keys(keys: Sequence[Key], now: float) -> None:
    console = stdout()
    if not keys:
        console.print("no keys", style="dim")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("id", no_wrap=True, style="dim")
    table.add_column("key", no_wrap=True, overflow="ellipsis")
    for title in ("scopes", "queues", "made", "used", "state"):
        table.add_column(title, no_wrap=True)
    with_quotas = any(map(_set_quotas, keys))
    if with_quotas:
        table.add_column("quotas")
    for key in keys:
        used = f"{span(now - key.used_at)} ago" if key.used_at is not None else "never"
        made = f"{span(now - key.created_at)} ago"
        row = (
            key.id,
            Text(key.name, "bold"),
            ", ".join(key.scopes),
            _queues(key),
            made,
            used,
            _state(key, now),
        )
        table.add_row(*row, *((_quotas(key),) if with_quotas else ()))
    print_table(console, table)


def _queues(key: Key) -> Text:
    """Return the queues. All queues without an explicit ``*`` are marked as a warning."""
    if key.queues is None:
        return Text("all queues", "yellow") if key.serves_all else Text("")
    return Text("all queues" if ALL_QUEUES in key.queues else ", ".join(key.queues))


def _quotas(key: Key) -> str:
    found = _set_quotas(key).items()
    return ", ".join(
        f"{name.replace('_', ' ')} {f'{value:,}' if value else 'no limit'}" for name, value in found
    )


def _state(key: Key, now: float) -> Text:
    wrong = key.why_not(now)
    if wrong is not None:
        return Text("revoked" if key.revoked_at is not None else "expired", "red")
    if key.expires_at is not None:
        return Text(f"expires in {span(key.expires_at - now)}", "yellow")
    return Text("valid", "green")


def limit_object(view: LimitView) -> dict[str, Any]:
    rate = view.rule.rate
    return {
        "key": view.key,
        "concurrency": view.rule.concurrency,
        "rate": show_rate(rate) if rate is not None else None,
        "in_use": view.in_use,
        "waiting": view.waiting,
        "opens_at": iso(view.opens_at),
    }


def limit_text(view: LimitView) -> str:
    """Return the limits that operators have set, in a few words."""
    rule = view.rule
    parts = [f"{rule.concurrency} at once"] if rule.concurrency is not None else []
    parts += [show_rate(rule.rate)] if rule.rate is not None else []
    return ", ".join(parts) or "as definitions say"


def print_limits(views: Sequence[LimitView]) -> None:
    console = stdout()
    if not views:
        console.print("no limits are set, and nothing uses one", style="dim")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("key", no_wrap=True, overflow="ellipsis")
    for title in ("limit", "in use", "waiting"):
        table.add_column(title, no_wrap=True)
    for view in views:
        table.add_row(Text(view.key, "bold"), limit_text(view), f"{view.in_use:,}", f"{view.waiting:,}")
    print_table(console, table)


LOOKS = {"alive": "RUNNING", "dead": "FAILED"}


def worker_object(worker: WorkerSeen) -> dict[str, Any]:
    """A worker as in ``GET /v1/workers``, with its name."""
    return {
        "name": worker.name,
        **msgspec.to_builtins(worker),
        "since": iso(worker.since),
        "heard_at": iso(worker.heard_at),
        "expires_at": iso(worker.expires_at),
        "running": [
            {name: getattr(each, name) for name in each.__struct_fields__} for each in worker.running
        ],
    }


def print_workers(workers: Sequence[WorkerSeen], now: float) -> None:
    console = stdout()
    if not workers:
        console.print("no workers; `dalsegno worker` starts one", style="dim")
        return
    signs = signs_for(console)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True, min_width=1)
    table.add_column("worker", no_wrap=True, overflow="ellipsis")
    for title in ("state", "version", "running", "queues", "since", "last heard"):
        table.add_column(title, no_wrap=title != "queues")
    for worker in sorted(workers, key=_alive_first):
        look = LOOKS[worker.state]
        table.add_row(
            Text(signs.states[look], STYLES[look]),
            Text(worker.name, "bold"),
            _worker_state(worker),
            worker.version or "?",
            _running(worker),
            ", ".join(worker.queues),
            moment(worker.since),
            f"{span(now - worker.heard_at)} ago" if worker.heard_at is not None else "",
        )
    print_table(console, table, crop=False)


def _worker_state(worker: WorkerSeen) -> str:
    if worker.via is not None:
        return f"{worker.state}, {worker.via}"
    return f"{worker.state}, remote" if worker.kind == "remote" else worker.state


def _alive_first(worker: WorkerSeen) -> tuple[bool, str]:
    return worker.state == "dead", worker.name


def _running(worker: WorkerSeen) -> str:
    """Return the steps that a worker holds, and its concurrency. A dead worker holds them until they are taken back."""
    return f"{worker.leases:,} of {worker.concurrency:,}" if worker.concurrency else f"{worker.leases:,}"


# -- open tasks as data, as a list, and in full --------------------------------------------------------------


def as_object(task: OpenTask) -> dict[str, Any]:
    return {**msgspec.structs.asdict(task), "due": iso(task.due)}


def print_tasks(tasks: Sequence[OpenTask]) -> None:
    """Print each id on a line of its own, to be copied."""
    console = stdout()
    if not tasks:
        console.print("no task is pending or running")
        return
    for task in tasks:
        console.print(Text(task.id, "bold"), soft_wrap=True)
        console.print(Text(f"  {_what(task)}"), soft_wrap=True)


def print_task(task: OpenTask) -> None:
    console = stdout()
    print_tasks([task])
    if task.docs:
        console.print(Text(f"  {task.docs}", "dim"), soft_wrap=True)
    console.print(Text(f"  input: {_json(task.input)}"), soft_wrap=True)
    if task.returns is not None:
        console.print(Text(f"  returns: {_json(task.returns)}"), soft_wrap=True)


def _what(task: OpenTask) -> str:
    kind = "remote task" if task.is_remote else "task" if task.task is not None else "node"
    name = task.task if task.task is not None else task.node
    where = f" at node '{task.node}'" if task.task is not None and task.node != task.task else ""
    what = f"{kind} '{name}'{where} of {task.workflow or 'unknown workflow'}"
    return f"{what}: {_task_state(task)}, attempt {task.attempt}"


def _task_state(task: OpenTask) -> str:
    if task.lost is not None:
        return task.lost
    if task.state == "running":
        return f"held by {task.holder}" if task.holder else "running"
    if task.state == "queued":
        return f"waits in queue '{task.queue}'"
    if task.state == "waiting" and task.due is not None:
        return f"sleeps until {iso(task.due)}"
    return "its execution is paused" if task.state == "paused" else "waits for something from outside"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def person(given: str | None) -> str | None:
    """Return the name of the person who acts: the given one, else the user of this machine."""
    if given is not None:
        return given
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # the account has no name
        return None
