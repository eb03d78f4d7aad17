"""Looking into a suspended machine: what it awaits and its variables, where its code is at hand."""

from __future__ import annotations

from os.path import relpath

from dalsegno.cli.desk import Desk
from dalsegno.cli.source_text import SourceText
from dalsegno.engine.scripting.looking import Picture
from dalsegno.errors import BadConfiguration, UsageError
from dalsegno.lang import SnapshotError


async def look_inside(
    client: Desk, execution: str, source: SourceText | None, *, variables: bool
) -> tuple[Picture | None, str]:
    """The picture, or why there is none: objects of a Python workflow are made by its own classes."""
    try:
        return await client.picture(execution, variables=variables), ""
    except (UsageError, SnapshotError, BadConfiguration) as error:
        if source is None or not source.file:
            return None, str(error)
        return None, f"they need the workflow's own code; give it with --app {short_path(source.file)}"


def short_path(file: str) -> str:
    return min(relpath(file), file, key=len)
