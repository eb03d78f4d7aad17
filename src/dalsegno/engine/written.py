"""Graphs as somebody wrote them: YAML with its comments, beside the definition, which has its content only.

The text belongs to the content hash. Whoever deploys the same content with other words replaces them.
"""

from __future__ import annotations

from collections.abc import Iterable

from dalsegno.model.definition import Definition
from dalsegno.ports.records import Records

KIND = "definition-text"


async def keep_text(records: Records, definition: Definition, text: str | bytes) -> None:
    raw = text.encode() if isinstance(text, str) else text
    known = await records.get(KIND, definition.hash)
    if known is None or known.data != raw:
        await records.put(KIND, definition.hash, raw)


async def text_of(records: Records, definition: Definition) -> str | None:
    """None where it was deployed as data, or is no graph."""
    found = await records.get(KIND, definition.hash) if definition.kind == "graph" else None
    return found.data.decode(errors="replace") if found is not None else None


async def forget_texts(records: Records, definitions: Iterable[Definition]) -> None:
    """Of definitions that were removed."""
    for each in definitions:
        if each.kind == "graph":
            await records.remove(KIND, each.hash)
