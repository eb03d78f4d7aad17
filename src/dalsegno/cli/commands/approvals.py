"""``approvals``, ``approve`` and ``reject``: decisions that workflows wait for."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from dalsegno.cli.options import AppName, ExecutionId, Json, Limit, OfWorkflow, Server, Store

Node: TypeAlias = Annotated[
    str | None,
    typer.Argument(metavar="NODE", help="The node that asks; required if several do.", show_default=False),
]
Data: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--data",
        "-d",
        metavar="JSON",
        help="Data for the form: JSON, @FILE, or - for stdin.",
        show_default=False,
    ),
]
Comment: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--comment",
        metavar="TEXT",
        help="A reason, stored with the decision. It needs no form.",
        show_default=False,
    ),
]
By: TypeAlias = Annotated[
    str | None,
    typer.Option("--by", metavar="NAME", help="Name of the person who decides.", show_default=False),
]
Index: TypeAlias = Annotated[
    list[int] | None,
    typer.Option(
        "--index",
        metavar="N",
        help="Item of a split; for nested splits once each, outermost first.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    app.command("approvals")(list_approvals)
    _deciding(
        "approved",
        "approve",
        "Approve a pending request. Data that does not match its form is refused.",
        app,
    )
    _deciding(
        "rejected",
        "reject",
        "Reject a pending request. No data is needed. The workflow continues and can see the rejection.",
        app,
    )


def list_approvals(
    execution: Annotated[
        str | None,
        typer.Argument(metavar="EXECUTION", help="Only requests of this execution.", show_default=False),
    ] = None,
    workflow: OfWorkflow = None,
    limit: Limit = 20,
    store: Store = None,
    server: Server = None,
    app: AppName = None,
    json: Json = False,
) -> None:
    """List pending approvals and the commands that decide them."""
    import asyncio

    from dalsegno.cli.output import emit
    from dalsegno.cli.target.target import find_execution, reached, where_to
    from dalsegno.cli.views.approvals import as_object, print_approvals

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

        from dalsegno.cli.documents import read_payload
        from dalsegno.cli.output import emit, reference_names
        from dalsegno.cli.target.target import find_execution, reached, where_to
        from dalsegno.cli.views.approvals import NAMED, UnfitData, form_asked, meant, with_own_hint
        from dalsegno.errors import InvalidInput

        carried = read_payload(data, "data")
        where = where_to(store, server, app)

        async def run() -> None:
            async with reached(where) as client:
                found = await find_execution(client, execution)
                with with_own_hint():
                    asked = node
                    if asked is None:
                        of_it = await client.approvals(found)
                        others = await client.pending_approvals(None, NAMED) if not of_it else []
                        found, asked = meant(of_it, found, others)
                    try:
                        await client.decide(found, asked, decision, carried, by, index or None, comment)
                    except InvalidInput as error:
                        approval = form_asked(await client.approvals(found), asked, index)
                        raise (UnfitData(error, approval, where.command) if approval else error) from None
            if json:
                body = {"comment": comment} if comment is not None else {}
                emit({**reference_names(found), "node": asked, "decision": decision, **body})
            else:
                print(f"{decision} '{asked}' of {found}")

        asyncio.run(run())

    app.command(verb, help=help)(decide)
