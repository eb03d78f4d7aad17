"""What a stranger may send: it is refused in words, and nobody else waits for it."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from dalsegno.lang.expressions.syntax.tree import Program
from dalsegno.lang.flow.syntax import parser

GRAPH = {"name": "greet", "nodes": [{"id": "a", "type": "log", "parameters": {"message": "hi"}}]}
HALF_A_CHARACTER = rb"\ud800"
SCRIPT = {"Content-Type": "application/vnd.dalsegno.flow"}
A_LONG_SCRIPT = b"let a = 1\n" + b"a += 1\n" * 2000 + b"return a\n"


async def test_a_refusal_that_quotes_half_a_character_is_still_a_refusal(http: httpx.AsyncClient) -> None:
    started = await http.post("/v1/executions", json={"definition": GRAPH})
    execution = started.json()["id"]
    await http.get(f"/v1/executions/{execution}/wait", params={"seconds": 30})

    answer = await http.post(
        f"/v1/executions/{execution}/rerun",
        content=b'{"nodes": ["' + HALF_A_CHARACTER + b'"]}',
        headers={"Content-Type": "application/json"},
    )

    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"] == "workflow 'greet' has no node '?'"


@pytest.mark.parametrize("path", ["/v1/definitions/validate", "/v1/definitions?name=long"])
async def test_others_are_served_while_a_long_definition_is_checked(
    http: httpx.AsyncClient, path: str
) -> None:
    checking = asyncio.create_task(http.post(path, content=A_LONG_SCRIPT, headers=SCRIPT, timeout=60))
    answered = 0
    while not checking.done():
        assert (await http.get("/v1/health/live")).status_code == 200
        answered += 1
        await asyncio.sleep(0.01)  # the check needs the processor, too

    assert (await checking).status_code in (200, 201)
    # Each time the check hands over the interpreter, mostly dozens of times; one or two if it kept the loop to itself.
    assert answered > 2


@pytest.mark.parametrize(
    ("path", "most"), [("/v1/session", "4,096"), ("/v1/approvals/links/nobody-knows", "262,144")]
)
async def test_strangers_may_not_send_much(http: httpx.AsyncClient, path: str, most: str) -> None:
    much = {"key": "x" * 300_000}
    refused = await http.post(path, json=much)
    assert refused.status_code == 413
    assert f"larger than {most} bytes" in refused.json()["detail"]
    assert (await http.post("/v1/executions", json=much)).status_code == 422


@pytest.mark.parametrize("path", ["/v1/definitions/validate", "/v1/definitions?name=once"])
async def test_a_script_is_parsed_once(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Parsing is most of the work, and a stranger to us decides how long a script is."""
    parsed: list[int] = []
    parse = parser._parse

    def counted(source: str, start: int) -> Program:
        parsed.append(len(source))
        return parse(source, start)

    monkeypatch.setattr(parser, "_parse", counted)
    answer = await http.post(path, content=b"return 1\n", headers=SCRIPT)
    assert answer.status_code in (200, 201), answer.text
    assert len(parsed) == 1
