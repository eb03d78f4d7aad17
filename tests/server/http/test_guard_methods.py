"""A method that a path does not have is refused with those that it has."""

from __future__ import annotations

import httpx


async def test_a_method_that_is_not_there_is_answered_with_those_that_are(http: httpx.AsyncClient) -> None:
    for method, path, allowed in (
        ("PATCH", "/v1/keys", {"GET", "HEAD", "POST"}),
        ("OPTIONS", "/v1/session", {"GET", "HEAD", "POST", "DELETE"}),
        ("PUT", "/v1/keys/x", {"DELETE", "PATCH"}),
        ("TRACE", "/v1/audit", {"GET", "HEAD"}),
    ):
        answer = await http.request(method, path)
        assert (answer.status_code, answer.json()["code"]) == (405, "DS-190")
        assert set(answer.headers["allow"].split(", ")) == allowed
        assert method in answer.json()["detail"]
