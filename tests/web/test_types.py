"""The types that the web UI is compiled against are those of the server's API."""

from __future__ import annotations

import re
from typing import get_args

from dalsegno.model.event import EventKind
from scripts.generate_web_types import TYPES, WEB, generate, shapes


def test_the_types_of_the_api_client_are_up_to_date() -> None:
    assert TYPES.read_text() == generate(), "run: make web-types"


def test_texts_are_left_out_but_not_properties_that_are_named_like_them() -> None:
    schema = {
        "type": "object",
        "title": "Page",
        "properties": {"title": {"type": "string", "description": "x"}},
    }
    operation = {
        "summary": "Get a page",
        "responses": {"200": {"content": {"application/json": {"schema": schema, "example": 1}}}, "404": {}},
    }
    document = {"info": {"title": "x"}, "paths": {"/tags": {"get": operation}}}
    found = shapes(document)["paths"]["/tags"]["get"]
    assert set(found) == {"responses"}
    assert set(found["responses"]) == {"200", "default"}
    assert found["responses"]["200"]["content"]["application/json"] == {
        "schema": {"type": "object", "properties": {"title": {"type": "string"}}}
    }


def test_the_ui_follows_every_kind_of_event() -> None:
    text = (WEB / "src" / "executions" / "live.ts").read_text()
    [kinds] = re.findall(r"const KINDS = \[(.*?)\]", text, re.DOTALL)
    assert set(re.findall(r'"(\w+)"', kinds)) == set(get_args(EventKind))
