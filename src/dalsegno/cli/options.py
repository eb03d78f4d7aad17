"""Options that several commands share."""

from __future__ import annotations

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
        "it is not given.",
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
