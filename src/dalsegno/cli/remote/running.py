"""Workflows that a server runs, started from here and watched until they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dalsegno.cli.deploying import Deployed
from dalsegno.cli.desk import Desk
from dalsegno.cli.documents import Document, read_document
from dalsegno.cli.modules import names_python
from dalsegno.cli.places import Where, reached
from dalsegno.cli.problems import Refusal
from dalsegno.cli.remote.deploying import deploy_there
from dalsegno.cli.watching import watch_execution
from dalsegno.client.archive import ServerArchive
from dalsegno.engine.loop import run
from dalsegno.engine.starting import StartOptions
from dalsegno.errors import InternalError
from dalsegno.model.definition import format_target


async def deploy_all(where: Where, documents: Sequence[Document], alias: str | None) -> list[Deployed]:
    async with reached(where) as desk:
        return await deploy_there(_archive(desk), documents, alias=alias)


def run_there(
    where: Where,
    target: str,
    payload: Any,
    options: StartOptions,
    *,
    json: bool,
    quiet: bool,
    seconds: float | None,
) -> int:
    """Deploys a document or script, starts it, and shows it until it ends; the exit code is that of ``run``."""
    if names_python(target):
        raise Refusal(
            f"{target} is a Python workflow, whose code must be where it runs",
            f"Start the server with --app {target.partition(':')[0]}; then `dalsegno start NAME` starts it there.",
        )
    document = read_document(target)

    async def start(desk: Desk) -> str:
        deployed = (await deploy_there(_archive(desk), [document]))[0]
        return await desk.start(format_target(deployed.name, deployed.version), payload, options)

    return run(watch_execution(where, start, seconds, quiet=quiet, as_json=json, fresh=True))


def _archive(desk: Desk) -> ServerArchive:
    archive = desk.stack.archive
    if not isinstance(archive, ServerArchive):
        raise InternalError("a store that is opened here was asked as if it were a server's")
    return archive
