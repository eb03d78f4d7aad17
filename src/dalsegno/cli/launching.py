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
from dalsegno.engine.client import Client


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
        return await client.rerun(await find_execution(client, execution), nodes, edits)

    if not detach:
        return session.run(create)
    asyncio.run(_detached(session, create, json=json))
    return 0


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
