"""``/v1/dead``: what does not go on by itself."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Request

from dalsegno.engine.dead import DeadLetters, DeadPlace
from dalsegno.server.access import caller_of, needs
from dalsegno.server.office import TheOffice
from dalsegno.server.pages import Cursor, Limit, Page, from_cursor, not_given_out, to_cursor
from dalsegno.server.repeating import starter_of
from dalsegno.server.route import Route
from dalsegno.server.schemas.operation import DeadLetterInfo, Handled

router = APIRouter(prefix="/dead", tags=["operation"], route_class=Route)

LetterId = Annotated[str, Path(max_length=300, description="As the list shows it.")]


@router.get("", operation_id="list_dead_letters", dependencies=[needs("read")])
async def dead(office: TheOffice, limit: Limit = 100, cursor: Cursor = None) -> Page[DeadLetterInfo]:
    """Orders that cannot be delivered, steps that no worker can run, executions that nothing can move, and executions
    that failed for a reason of the system. A page looks at 1,000 failed executions at most: one that is short, or
    empty, is not the last while it has a `next`."""
    found, further = await DeadLetters(office.engine).page(_place(cursor), limit)
    items = [DeadLetterInfo.of(letter) for letter in found]
    return Page(items=items, next=_cursor(further) if further is not None else None)


@router.post("/{letter:whole}/retry", operation_id="retry_dead_letter", dependencies=[needs("run")])
async def retry(office: TheOffice, letter: LetterId, http: Request) -> Handled:
    """Tries it once more at once. A failed execution is retried as a new one, which is named."""
    caller = caller_of(http)
    office.usage.count_starts(caller)
    starter = await starter_of(office, caller, None)
    return Handled(id=letter, execution=await DeadLetters(office.engine).retry(letter, starter))


@router.post("/{letter:whole}/drop", operation_id="drop_dead_letter", dependencies=[needs("admin")])
async def drop(office: TheOffice, letter: LetterId) -> Handled:
    """Gives it up: an order is not carried out, an execution is cancelled, a failed one is no longer listed."""
    return Handled(id=letter, execution=await DeadLetters(office.engine).drop(letter))


def _cursor(place: DeadPlace) -> str:
    return to_cursor(msgspec.json.encode(place).decode())


def _place(cursor: str | None) -> DeadPlace | None:
    told = from_cursor(cursor)
    if told is None:
        return None
    try:
        place = msgspec.json.decode(told, type=DeadPlace)
    except msgspec.DecodeError:
        raise not_given_out() from None
    if "\0" in place.id:
        raise not_given_out()
    return place
