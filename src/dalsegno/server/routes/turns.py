"""``/v1/executions/{id}/turns``: the recorded turns of a script or Python workflow."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from dalsegno.server.auth.authentication import needs
from dalsegno.server.http.responses import outline, with_results
from dalsegno.server.http.routing import Route
from dalsegno.server.routes.executions import ExecutionId
from dalsegno.server.schemas.turns import TurnDetail, TurnList
from dalsegno.server.services import Services

router = APIRouter(tags=["executions"], route_class=Route)

MOST_NUMBER = 2**53


@router.get("/executions/{execution}/turns", operation_id="list_turns", dependencies=[needs("read")])
async def turns(
    services: Services,
    execution: ExecutionId,
    first: Annotated[
        int | None,
        Query(
            alias="from", ge=0, le=MOST_NUMBER, description="Number of the first turn, in the given order."
        ),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries.")] = 100,
    order: Annotated[Literal["oldest", "newest"], Query(description="Which turns come first.")] = "oldest",
) -> TurnList:
    """Lists the turns that are kept of a script or Python workflow: where each stopped, and what it then waited for. A
    graph has none."""
    await outline(services, execution)
    page = await services.client.turn_page(execution, first, limit, newest_first=order == "newest")
    return TurnList.of(page)


@router.get("/executions/{execution}/turns/{number}", operation_id="get_turn", dependencies=[needs("read")])
async def turn(
    services: Services,
    execution: ExecutionId,
    number: Annotated[int, Path(ge=1, le=MOST_NUMBER, description="The number of the turn, from 1.")],
) -> TurnDetail:
    """Returns one turn in full: the outcomes it received, the running functions with their variables and what changed,
    and what it asked for. Values over 8 KiB are cut."""
    await with_results(services, execution)
    return TurnDetail.of_view(await services.client.turn_view(execution, number))
