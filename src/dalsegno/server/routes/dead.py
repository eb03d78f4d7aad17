"""``/v1/dead``: what does not go on by itself."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from dalsegno.engine.dead import DeadLetters
from dalsegno.server.access import needs
from dalsegno.server.office import TheOffice
from dalsegno.server.pages import Limit
from dalsegno.server.schemas.operation import DeadLetterInfo, DeadLetterList, Handled

router = APIRouter(prefix="/dead", tags=["operation"])

LetterId = Annotated[str, Path(max_length=300, description="As the list shows it.")]


@router.get("", dependencies=[needs("read")])
async def dead(office: TheOffice, limit: Limit = 100) -> DeadLetterList:
    """Orders that cannot be delivered, steps that no worker can run, executions that nothing can move, and executions
    that failed for a reason of the system (among the 1,000 newest failed ones)."""
    found = await DeadLetters(office.engine).all(limit)
    return DeadLetterList(dead=[DeadLetterInfo.of(letter) for letter in found])


@router.post("/{letter:path}/retry", dependencies=[needs("run")])
async def retry(office: TheOffice, letter: LetterId) -> Handled:
    """Tries it once more at once. A failed execution is retried as a new one, which is named."""
    return Handled(id=letter, execution=await DeadLetters(office.engine).retry(letter))


@router.post("/{letter:path}/drop", dependencies=[needs("admin")])
async def drop(office: TheOffice, letter: LetterId) -> Handled:
    """Gives it up: an order is not carried out, an execution is cancelled, a failed one is no longer listed."""
    return Handled(id=letter, execution=await DeadLetters(office.engine).drop(letter))
