"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

import typer

Store: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--store",
        "-s",
        metavar="URL",
        help="The store. Default: DALSEGNO_STORE, else sqlite:///dalsegno.db.",
        show_default=False,
    ),
]
Server: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="A server instead of a store. Default: DALSEGNO_SERVER; its key: DALSEGNO_KEY.",
        show_default=False,
    ),
]
Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON value, nothing else, on stdout.")
]
Input: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--input",
        "-i",
        metavar="JSON",
        help="The start payload: JSON, @FILE, or - for stdin.",
        show_default=False,
    ),
]
AppName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:NAME",
        help="A Python App whose tasks, nodes and workflows are used: MODULE:NAME or FILE.py:NAME; the NAME is app if "
        "it is not given. Its own store is taken where neither --store nor DALSEGNO_STORE names one.",
        show_default=False,
    ),
]
Timeout: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--timeout",
        metavar="DURATION",
        help="Stop after this long (30s, 5m) with exit code 124; the execution can be resumed.",
        show_default=False,
    ),
]
Tags: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="KEY=VALUE", help="A tag; may be given several times.", show_default=False),
]
Key: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="TEXT",
        help="Idempotency key: a second start with it is the first.",
        show_default=False,
    ),
]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, only the result.")]
ExecutionId: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="EXECUTION",
        help="The execution's id, its first characters, or `last` for the newest.",
        show_default=False,
    ),
]
Detach: TypeAlias = Annotated[
    bool, typer.Option("--detach", help="Only create the new execution; a worker runs it.")
]
OfWorkflow: TypeAlias = Annotated[
    str | None, typer.Option("--workflow", "-w", help="Only of this workflow.", show_default=False)
]
Limit: TypeAlias = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="At most this many.")]
Target: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="WORKFLOW",
        help="A script (.flow), a JSON or YAML document, - for one on stdin, or a Python workflow as FILE.py:NAME "
        "or MODULE:NAME.",
        show_default=False,
    ),
]
FromNodes: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="NODE...", help="Where to begin.", show_default=False)
]
EditedContext: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="JSON",
        help="Outputs to change, by node: JSON, @FILE or -.",
        show_default=False,
    ),
]
Port: TypeAlias = Annotated[int, typer.Option(min=0, max=65_535, help="0 takes any that is free.")]
Queues: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Queues that its worker serves. Default: default.", show_default=False),
]
Concurrency: TypeAlias = Annotated[
    int | None,
    typer.Option(min=1, max=100_000, help="Steps at the same time. Default: 100.", show_default=False),
]
Grace: TypeAlias = Annotated[
    float | None,
    typer.Option(min=0, help="Seconds for what still runs at the end. Default: 10.", show_default=False),
]
WorkflowShare: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--workflow-share",
        min=0.01,
        max=1.0,
        help="Share of the steps at the same time that one workflow may hold; the rest is for others. Default: 0.8.",
        show_default=False,
    ),
]
HttpTimeout: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--http-timeout",
        min=0.1,
        help="Seconds that one run of an http node may take at most. Default: 300.",
        show_default=False,
    ),
]
HttpResponseBytes: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--http-response-bytes",
        min=1,
        help="Bytes that one run of an http node may read at most. Default: 64 MiB.",
        show_default=False,
    ),
]
HealthPort: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--health-port",
        metavar="[ADDRESS:]PORT",
        help="Answer /live, /ready and /metrics there. Default: DALSEGNO_HEALTH_PORT, else not at all.",
        show_default=False,
    ),
]
Processes: TypeAlias = Annotated[
    int,
    typer.Option(min=1, max=1000, help="Worker processes; one that dies is started again."),
]
Retention: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--retention",
        metavar="[STATE=]DURATION",
        help="Remove executions so long after their end: 30d; or by state, several times: COMPLETED=7d. Default: as "
        "the application says, else never.",
        show_default=False,
    ),
]
Streams: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=1_000_000,
        help="Event streams and waiting calls open at the same time; beyond that a 503. Default: 10,000.",
        show_default=False,
    ),
]
Checks: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--check",
        metavar="NAME=N",
        help="Bound of the processes that check large definitions and schemas: processes (default: 2), seconds (15) "
        "and memory (1 GiB, in bytes) of one, queue (16 waiting checks of one caller); may be given several times.",
        show_default=False,
    ),
]
DefaultQuotas: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--quota",
        metavar="NAME=N",
        help="Quota of keys without their own: starts-per-minute, bytes-per-minute, open-streams, stored-executions; "
        "may be given several times.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class Place:
    """What ``--store``, ``--server`` and ``--app`` say together."""

    store: str | None
    server: str | None
    app: str | None = None
