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
        help="URL of the store. Default: DALSEGNO_STORE, else sqlite:///dalsegno.db.",
        show_default=False,
    ),
]
Server: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="URL of a server, instead of a store. Default: DALSEGNO_SERVER; its API key: DALSEGNO_KEY.",
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
        help="Start payload: JSON, @FILE, or - for stdin.",
        show_default=False,
    ),
]
AppName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--app",
        metavar="MODULE:NAME",
        help="Python App whose tasks, nodes and workflows are used: MODULE:NAME or FILE.py:NAME; NAME defaults to "
        "app. Its own store is used where neither --store nor DALSEGNO_STORE names one.",
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
    typer.Option("--tag", metavar="KEY=VALUE", help="A tag; repeatable.", show_default=False),
]
Key: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="TEXT",
        help="Idempotency key: the same key returns the first execution.",
        show_default=False,
    ),
]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress, only the result.")]
ExecutionId: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="EXECUTION",
        help="Id of the execution, its first characters, or `last`: the newest that no workflow started.",
        show_default=False,
    ),
]
Detach: TypeAlias = Annotated[
    bool, typer.Option("--detach", help="Only create the new execution; a worker runs it.")
]
OfWorkflow: TypeAlias = Annotated[
    str | None, typer.Option("--workflow", "-w", help="Only this workflow.", show_default=False)
]
Limit: TypeAlias = Annotated[
    int, typer.Option("--limit", "-n", min=1, max=10_000, help="Maximum number of entries.")
]
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
    list[str] | None, typer.Argument(metavar="[NODE...]", help="Node to start from.", show_default=False)
]
AtTurn: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TURN",
        help="Of a script or Python workflow: begin after this turn, a number or the name of a checkpoint.",
        show_default=False,
    ),
]
SetVariables: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=JSON",
        help="With --at: another value of a variable of the function that waits there. Repeatable.",
        show_default=False,
    ),
]
Answers: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--answer",
        metavar="CALL=JSON",
        help="With --at: the result of a call that was pending there, by its name or promise (p3). Repeatable.",
        show_default=False,
    ),
]
EditedContext: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="JSON",
        help="Node outputs to change, by node: JSON, @FILE or -.",
        show_default=False,
    ),
]
AgainVersion: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--version",
        metavar="VERSION",
        help="Go on in this version: a number, an alias or 'latest'. Default: the version that it ran.",
        show_default=False,
    ),
]
Port: TypeAlias = Annotated[
    int, typer.Option(min=0, max=65_535, help="Port to listen on; 0 takes a free one.")
]
Queues: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Queues that the worker serves. Default: default.", show_default=False),
]
Concurrency: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1, max=100_000, help="Maximum number of concurrent steps. Default: 100.", show_default=False
    ),
]
Grace: TypeAlias = Annotated[
    float | None,
    typer.Option(
        min=0, help="Seconds that running steps have to finish at shutdown. Default: 10.", show_default=False
    ),
]
WorkflowShare: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--workflow-share",
        min=0.01,
        max=1.0,
        help="Share of the concurrent steps that one workflow may use; the rest is for others. Default: 0.8.",
        show_default=False,
    ),
]
HttpTimeout: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--http-timeout",
        min=0.1,
        help="Maximum seconds that one run of an http node takes. Default: 300.",
        show_default=False,
    ),
]
HttpResponseBytes: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--http-response-bytes",
        min=1,
        help="Maximum bytes that one run of an http node reads. Default: 64 MiB.",
        show_default=False,
    ),
]
HealthPort: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--health-port",
        metavar="[ADDRESS:]PORT",
        help="Serve /live, /ready and /metrics there. Default: DALSEGNO_HEALTH_PORT, else off.",
        show_default=False,
    ),
]
Processes: TypeAlias = Annotated[
    int,
    typer.Option(min=1, max=1000, help="Number of worker processes; one that dies is restarted."),
]
Retention: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--retention",
        metavar="[STATE=]DURATION",
        help="Remove executions this long after their end: 30d; or by state, repeatable: COMPLETED=7d. Default: that "
        "of the application, else never.",
        show_default=False,
    ),
]
Streams: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=1_000_000,
        help="Maximum number of open event streams and waiting calls; beyond that a 503. Default: 10,000.",
        show_default=False,
    ),
]
Checks: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--check",
        metavar="NAME=N",
        help="Limit of the processes that check large definitions and schemas: processes (default: 2), seconds (15) "
        "and memory (1 GiB, in bytes) of one, queue (16 waiting checks of one caller); repeatable.",
        show_default=False,
    ),
]
DefaultQuotas: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--quota",
        metavar="NAME=N",
        help="Quota of keys without their own: starts-per-minute, bytes-per-minute, open-streams, stored-executions; "
        "repeatable.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class Place:
    """The values of ``--store``, ``--server`` and ``--app``."""

    store: str | None
    server: str | None
    app: str | None = None


Reason: TypeAlias = Annotated[
    str | None,
    typer.Option("--reason", metavar="TEXT", help="The reason; recorded in the history.", show_default=False),
]
