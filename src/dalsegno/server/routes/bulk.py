"""``/v1/executions/bulk``: one action for all executions that a filter finds."""

from __future__ import annotations

from fastapi import APIRouter, Request

from dalsegno.errors import Forbidden
from dalsegno.server.access import caller_of, needs
from dalsegno.server.bulk import remove_one, run_bulk
from dalsegno.server.office import TheOffice
from dalsegno.server.route import Route
from dalsegno.server.routes.executions import ExecutionId
from dalsegno.server.schemas.bulk import BulkReply, BulkRequest

router = APIRouter(prefix="/executions", tags=["executions"], route_class=Route)


@router.post("/bulk", operation_id="change_executions", dependencies=[needs("run")])
async def bulk(office: TheOffice, request: Request, order: BulkRequest) -> BulkReply:
    """Cancels, terminates, pauses, resumes, retries or deletes all executions that a filter finds, newest first.

    Only those in a state that allows the action are meant: `cancel` and `terminate` those that have not ended, `pause`
    running ones, `resume` paused ones, `retry` failed ones that were not retried yet (cancelled ones, if the filter
    says so), `delete` ended ones (needs the scope `admin`). A call takes `limit` of them; give `next` as `cursor` to
    go on. Doing it twice changes nothing more, so a call that was interrupted is made again as it was; for `retry`
    give `created_until`, or retries that fail again are retried in their turn.
    """
    caller = caller_of(request)
    if order.action == "delete" and "admin" not in caller.scopes:
        raise Forbidden(f"deleting needs a key with the scope 'admin'; '{caller.name}' has none")
    return await run_bulk(office, caller, order)


@router.delete(
    "/{execution}", operation_id="delete_execution", status_code=204, dependencies=[needs("admin")]
)
async def remove(office: TheOffice, execution: ExecutionId) -> None:
    """Removes an ended execution with its history and outputs, for good."""
    await remove_one(office, execution)
