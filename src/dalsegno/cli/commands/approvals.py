"""``approvals``, ``approve`` and ``reject``: what workflows ask people."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from dalsegno.cli.options import AppName, ExecutionId, Json, Limit, OfWorkflow, Server, Store

Node: TypeAlias = Annotated[
    str | None,
    typer.Argument(metavar="NODE", help="Which node asks; needed where several do.", show_default=False),
]
Data: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--data",
        "-d",
        metavar="JSON",
        help="What its form asks for: JSON, @FILE, or - for stdin.",
        show_default=False,
    ),
]
Comment: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--comment", metavar="TEXT", help="Why; kept with the decision. It needs no form.", show_default=False
    ),
]
By: TypeAlias = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Who decides.", show_default=False)
]
Index: TypeAlias = Annotated[
    list[int] | None,
    typer.Option(
        "--index",
        metavar="N",
        help="Which item of a split; of splits in splits once each, outermost first.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    app.command("approvals")(list_approvals)
    _deciding(
        "approved",
        "approve",
        "Say yes to what an execution asks. Data that do not fit its form are refused.",
        app,
    )
    _deciding(
        "rejected",
        "reject",
        "Say no to what an execution asks. It needs no data. The workflow goes on and can tell.",
        app,
    )


def list_approvals(
    execution: Annotated[
        str | None,
        typer.Argument(metavar="EXECUTION", help="Only of this execution.", show_default=False),
    ] = None,
    workflow: OfWorkflow = None,
    limit: Limit = 20,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """List what waits for somebody's decision, and the command that decides it."""
    import asyncio

    from dalsegno.cli.approvals import as_object, print_approvals
    from dalsegno.cli.opening import find_execution
    from dalsegno.cli.output import emit
    from dalsegno.cli.places import reached, where_to

    async def look() -> None:
        where = where_to(store, server, app)
        async with reached(where) as client:
            if execution is not None:
                found = await client.approvals(await find_execution(client, execution))
            else:
                found = await client.pending_approvals(workflow, limit + 1)
            now = client.stack.clock.now()
        if json:
            emit({"approvals": [as_object(each, where.command) for each in found[:limit]]})
        else:
            print_approvals(found, where.command, now, limit)

    asyncio.run(look())


def _deciding(decision: str, verb: str, help: str, app: typer.Typer) -> None:
    def decide(
        execution: ExecutionId,
        node: Node = None,
        data: Data = None,
        comment: Comment = None,
        by: By = None,
        index: Index = None,
        store: Store = None,
        server: Server = None,
        app: AppName = None,
        json: Json = False,
    ) -> None:
        import asyncio

        from dalsegno.cli.approvals import in_our_words, meant
        from dalsegno.cli.documents import read_payload
        from dalsegno.cli.opening import find_execution
        from dalsegno.cli.output import emit, reference_names
        from dalsegno.cli.places import reached, where_to

        carried = read_payload(data, "data")

        async def run() -> None:
            async with reached(where_to(store, server, app)) as client:
                found = await find_execution(client, execution)
                with in_our_words():
                    asked = node
                    if asked is None:
                        found, asked = meant(await client.approvals(found), found)
                    await client.decide(found, asked, decision, carried, by, index or None, comment)
            if json:
                said = {"comment": comment} if comment is not None else {}
                emit({**reference_names(found), "node": asked, "decision": decision, **said})
            else:
                print(f"{decision} '{asked}' of {found}")

        asyncio.run(run())

    app.command(verb, help=help)(decide)
