"""``/v1/approvals``: open approvals, decisions, and links for deciding without a key."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Path, Query, Request, status
from fastapi.responses import HTMLResponse, Response

from dalsegno.engine.operations.approvals import Approval
from dalsegno.engine.upkeep.outbox import is_within
from dalsegno.errors import Conflict, InvalidInput
from dalsegno.server.approvals.links import Found, Links, approval_cursor, approval_place
from dalsegno.server.approvals.page import data_of, ending_page, question_page, thanks_page
from dalsegno.server.auth.authentication import Caller, needs
from dalsegno.server.executions.filters import Cursor, Limit, Page, unknown_cursor
from dalsegno.server.http.openapi import FOLDER
from dalsegno.server.http.problems import MEDIA_TYPE, REFERENCE
from dalsegno.server.http.routing import Route
from dalsegno.server.routes.executions import ExecutionId
from dalsegno.server.schemas.approvals import (
    ApprovalInfo,
    DecisionInfo,
    DecisionRequest,
    LinkInfo,
    LinkRequest,
)
from dalsegno.server.schemas.values import moment
from dalsegno.server.services import Services

router = APIRouter(tags=["approvals"], route_class=Route)

NodeId = Annotated[str, Path(max_length=500, description="The node that asks.", examples=["gate"])]
Token = Annotated[str, Path(max_length=200, description="The secret part of a link.")]
Workflow = Annotated[str | None, Query(max_length=300, description="Only approvals of this workflow.")]

MOST_FIELDS = 1000
STATUSES = {"open": 200, "unknown": 404, "expired": 410, "used": 410, "decided": 409}
PAGES: dict[int | str, dict[str, Any]] = {
    code: {
        "description": words,
        "content": {
            "text/html": {"schema": {"type": "string"}},
            # Before the page is reached: an invalid path or request.
            **({MEDIA_TYPE: {"schema": REFERENCE}} if code >= 400 else {}),
        },
    }
    for code, words in (
        (200, "The page."),
        (400, "The form cannot be read."),
        (404, "No such link."),
        (409, "Someone else has decided, or the question is no longer open."),
        (410, "The link was used or has expired."),
        (422, "The decision does not fit the form; the page gives the reason."),
    )
}
STYLE = (FOLDER / "approval.css").read_bytes()


@router.get("/approvals", operation_id="list_approvals", dependencies=[needs("read")])
async def approvals(
    services: Services, workflow: Workflow = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[ApprovalInfo]:
    """Lists open approvals, those of the newest execution first."""
    return _page(await services.client.pending_approvals(workflow, limit + 1, approval_place(cursor)), limit)


def _page(found: list[Approval], limit: int) -> Page[ApprovalInfo]:
    """Return a page from a result with one more item than the page holds, if there are that many."""
    items = [ApprovalInfo.of(each) for each in found[:limit]]
    return Page(items=items, next=approval_cursor(found[limit - 1]) if len(found) > limit else None)


@router.get(
    "/executions/{execution}/approvals", operation_id="list_execution_approvals", dependencies=[needs("read")]
)
async def of_execution(
    services: Services, execution: ExecutionId, limit: Limit = 100, cursor: Cursor = None
) -> Page[ApprovalInfo]:
    """Lists open approvals of one execution and its unfinished children, oldest first."""
    after = approval_place(cursor)
    if after is not None and not await is_within(services.client.stack.archive, after.execution, execution):
        raise unknown_cursor()
    return _page(await services.client.approvals(execution, limit + 1, after), limit)


@router.post("/executions/{execution}/approvals/{node:whole}", operation_id="decide_approval")
async def decide(
    services: Services,
    execution: ExecutionId,
    node: NodeId,
    request: DecisionRequest,
    caller: Annotated[Caller, needs("run")],
) -> DecisionInfo:
    """Answers an open approval. An approval that is already decided or closed is refused (409). Data that do not
    fit its form are refused (422), and nothing is changed."""
    by = request.by or (caller.name if caller.key is not None else None)
    decision, comment = request.decision, request.comment
    await services.client.decide(execution, node, decision, request.data, by, request.index, comment)
    return DecisionInfo(execution=execution, node=node, decision=decision, by=by, comment=comment)


# -- links ----------------------------------------------------------------------------------------------------


@router.post(
    "/approvals/links",
    operation_id="create_approval_link",
    status_code=status.HTTP_201_CREATED,
    dependencies=[needs("run")],
)
async def make_link(services: Services, request: LinkRequest, http: Request) -> LinkInfo:
    """Creates an address with which one person may answer one open approval, once, without a key. Send it only to
    that person."""
    text, link = await Links(services.client).make(
        request.execution, request.node, request.index, request.expires, request.by
    )
    url = str(http.base_url).rstrip("/") + f"/v1/approvals/links/{text}"
    return LinkInfo(url=url, expires_at=moment(link.expires_at))


@router.get("/approvals/links/approval.css", include_in_schema=False)
async def style() -> Response:
    return Response(STYLE, media_type="text/css; charset=utf-8", headers={"Cache-Control": "no-cache"})


@router.get(
    "/approvals/links/{token}",
    operation_id="open_approval_link",
    response_class=HTMLResponse,
    responses=PAGES,
)
async def open_link(services: Services, token: Token) -> HTMLResponse:
    """Returns the page of a link: the question and a form. Opening it changes nothing, however often."""
    found = await Links(services.client).find(token)
    return _shown(found, token)


@router.post(
    "/approvals/links/{token}",
    operation_id="use_approval_link",
    response_class=HTMLResponse,
    responses=PAGES,
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                "application/x-www-form-urlencoded": {
                    "schema": {
                        "type": "object",
                        "required": ["token", "decision"],
                        "properties": {
                            "token": {"type": "string"},
                            "decision": {"enum": ["approved", "rejected"]},
                            "by": {"type": "string"},
                            "comment": {"type": "string"},
                        },
                    }
                }
            },
        }
    },
)
async def use_link(services: Services, token: Token, http: Request) -> HTMLResponse:
    """Receives the page's form. It decides once; in every other case the page states why it did not."""
    links = Links(services.client)
    given = _fields(await http.body())
    if given is None or given.get("token") != token:
        return _shown(
            await links.find(token), token, problem="The form is not complete. Try again.", code=400
        )
    decision = given.get("decision", "")
    found = await links.find(token)
    by, comment = given.get("by", "").strip() or None, given.get("comment", "").strip() or None
    try:
        form = found.approval.form if found.approval is not None else None
        # A rejection does not need the fields that an approval requires.
        data = None if decision == "rejected" else data_of(form, given)
        found = await links.decide(token, decision, data, by, comment)
    except InvalidInput as error:
        return _shown(found, token, given, str(error), 422)
    except Conflict:
        found = Found("decided", found.link)
    if found.state != "open" or found.link is None:
        return _shown(found, token)
    return HTMLResponse(thanks_page(decision, found.link.by or by))


def _shown(
    found: Found,
    token: str,
    given: dict[str, str] | None = None,
    problem: str | None = None,
    code: int | None = None,
) -> HTMLResponse:
    if found.state != "open":
        return HTMLResponse(ending_page(found), STATUSES[found.state])
    return HTMLResponse(question_page(found, token, given, problem), code or 200)


def _fields(body: bytes) -> dict[str, str] | None:
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:  # too many fields, or not UTF-8
        return None
