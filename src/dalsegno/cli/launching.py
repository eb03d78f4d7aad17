"""How ``run`` and its siblings make their sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from dalsegno.cli.documents import STDIN, read_payload, read_seconds
from dalsegno.cli.opening import find_execution, make_app, opened, require_store
from dalsegno.cli.output import emit
from dalsegno.cli.problems import Refusal
from dalsegno.cli.result import Command
from dalsegno.cli.session import Prepare, Session
from dalsegno.cli.suggesting import did_you_mean
from dalsegno.cli.tasks import refuse_unknown_tasks
from dalsegno.engine.client import Client
from dalsegno.graph.plan import Plan

LISTED = 20


def make_session(
    store: str | None, app: str | None, *, json: bool, quiet: bool, seconds: float | None
) -> Session:
    made = make_app(store, app)
    return Session(made, Command(made.url, app), json, quiet, seconds)


def refuse_double_stdin(file: str, payload: str | None) -> None:
    if file == STDIN and payload == STDIN:
        raise Refusal("stdin cannot be both the document and the input", "Give one of them as a file.")


def run_again(
    execution: str,
    nodes: Sequence[str] | None,
    context: str | None,
    store: str | None,
    app: str | None,
    timeout: str | None,
    *,
    detach: bool,
    quiet: bool,
    json: bool,
) -> int:
    """A new execution from ``nodes`` on, or without them from what failed; run to its end unless detached."""
    edits = read_payload(context, "context")
    if edits is not None and not isinstance(edits, dict):
        raise Refusal(
            "the context is no JSON object", """Write it like --context '{"node": {"price": 3}}'."""
        )
    session = make_session(store, app, json=json, quiet=quiet, seconds=read_seconds(timeout))
    require_store(session.app.url)

    async def create(client: Client) -> str:
        found = await find_execution(client, execution)
        program = await client.definitions.by_hash((await client.status(found)).definition)
        _check_nodes(program.plan, nodes or ())
        if not detach:
            refuse_unknown_tasks(session.app, program)
        return await client.rerun(found, nodes, edits)

    if not detach:
        return session.run(create)
    asyncio.run(_detached(session, create, json=json))
    return 0


def _check_nodes(plan: Plan, nodes: Sequence[str]) -> None:
    for name in nodes:
        if name not in plan.nodes:
            listed = ", ".join(list(plan.nodes)[:LISTED]) + (", ..." if len(plan.nodes) > LISTED else "")
            raise Refusal(
                f"workflow '{plan.name}' has no node '{name}'{did_you_mean(name, plan.nodes)}",
                f"Its nodes: {listed}.",
            )


async def _detached(session: Session, create: Prepare, *, json: bool) -> None:
    async with opened(session.app) as client:
        made = await client.status(await create(client))
    if json:
        emit(
            {
                "execution_id": made.id,
                "workflow": made.workflow,
                "version": made.version,
                "status": made.state,
                "parent": made.parent,
                "relation": made.relation,
            }
        )
    else:
        print(made.id)
