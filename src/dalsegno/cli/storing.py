"""What ``deploy`` does: documents and scripts into the store that is meant, all of them or none."""

from __future__ import annotations

from collections.abc import Sequence

from dalsegno.cli.deploying import Deployed, check_document, deploy_document, rehearse
from dalsegno.cli.documents import Document
from dalsegno.cli.opening import opened
from dalsegno.cli.places import Where


async def deploy_documents(
    where: Where,
    documents: Sequence[Document],
    *,
    warn_tasks: bool = False,
    alias: str | None = None,
    dry_run: bool = False,
) -> list[Deployed]:
    """``dry_run``: what would change; nothing is stored. ``warn_tasks``: tasks that the application does not have are
    told."""
    if where.server is not None and not dry_run:
        from dalsegno.cli.remote.running import deploy_all  # noqa: PLC0415 - only who speaks HTTP pays for it

        return await deploy_all(where, documents, alias)
    app = where.app
    for document in documents:
        check_document(document, app.registry)  # all are right, or none is stored
    if dry_run:
        return await rehearse(where, documents, warn_tasks=warn_tasks, alias=alias)
    async with opened(app, create=True):
        return [
            await deploy_document(app, each, warn_tasks=warn_tasks, alias=alias, triggers=True)
            for each in documents
        ]
