"""What a client does when a server is slow to answer, gone, strange or of another version."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from dalsegno import Client, DalSegnoError, NotFound
from dalsegno.client import executions as calls
from dalsegno.client.problems import NotThisServer, Problem, ServerUnreachable, error_of
from dalsegno.client.transport import Transport
from dalsegno.errors import (
    BadConfiguration,
    Conflict,
    Forbidden,
    InternalError,
    InvalidInput,
    StoreFull,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    UsageError,
)

EXECUTION: dict[str, Any] = {
    "id": "e1",
    "workflow": "greet",
    "version": 1,
    "kind": "graph",
    "state": "RUNNING",
    "created_at": "2030-01-31T09:00:00Z",
}


def problem(status: int, code: str, detail: str = "so it is", **headers: str) -> httpx.Response:
    body = {"type": f"/v1/errors/{code}", "title": "", "status": status, "detail": detail, "code": code}
    return httpx.Response(status, json=body, headers=headers)


def scripted(answers: Iterator[httpx.Response | Exception], seen: list[httpx.Request]) -> httpx.MockTransport:
    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        given = next(answers)
        if isinstance(given, Exception):
            raise given
        return given

    return httpx.MockTransport(answer)


Wired = Callable[..., tuple[Client, list[httpx.Request]]]


@pytest.fixture
def wired() -> Iterator[Wired]:
    made: list[Client] = []

    def make(
        *answers: httpx.Response | Exception, patience: float = 5.0
    ) -> tuple[Client, list[httpx.Request]]:
        seen: list[httpx.Request] = []
        wire = scripted(iter(answers), seen)
        made.append(Client("http://there:1", "the-key", patience=patience, wire=wire))
        return made[-1], seen

    yield make
    for client in made:
        client.close()


def test_a_start_without_an_answer_is_sent_again_with_the_same_key(wired: Wired) -> None:
    client, seen = wired(
        httpx.ReadError("the line broke"),
        problem(503, "DS-210", "the store is busy"),
        httpx.Response(201, json=EXECUTION),
    )
    assert client.start("greet", name="Ada").id == "e1"
    bodies = [json.loads(request.content) for request in seen]
    assert len(bodies) == 3
    assert len({body["idempotency_key"] for body in bodies}) == 1
    assert bodies[0]["input"] == {"name": "Ada"}


def test_what_must_not_happen_twice_is_not_sent_twice(wired: Wired) -> None:
    client, seen = wired(httpx.ReadError("the line broke"))
    with pytest.raises(ServerUnreachable, match="the line broke"):
        client.handle("e1").decide("ask", "approved")
    assert len(seen) == 1


def test_what_never_left_is_sent_again(wired: Wired) -> None:
    client, seen = wired(httpx.ConnectError("refused"), httpx.Response(200, json=EXECUTION))
    client.handle("e1").cancel()
    assert len(seen) == 2


def test_patience_ends_with_what_went_wrong(wired: Wired) -> None:
    client, seen = wired(*(httpx.ConnectError("refused") for _ in range(50)), patience=0.3)
    with pytest.raises(ServerUnreachable, match="the server at http://there:1 cannot be reached: refused"):
        client.handle("e1").status()
    assert 1 < len(seen) < 10


@pytest.mark.parametrize("timeout", [0.2, "200ms"])
def test_a_server_out_of_reach_is_not_waited_for_longer_than_for_the_execution(
    wired: Wired, monkeypatch: pytest.MonkeyPatch, timeout: float | str
) -> None:
    monkeypatch.setattr(calls, "ANSWER_DELAY", 0.1)
    client, seen = wired(*(httpx.ConnectError("refused") for _ in range(500)), patience=60)
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"execution e1 did not end within 0\.2 s"):
        client.handle("e1").result(timeout=timeout)
    assert time.monotonic() - began < 30
    assert seen


def test_a_timeout_that_is_no_duration_is_refused(wired: Wired) -> None:
    client, seen = wired()
    with pytest.raises(InvalidInput, match="'timeout': 'soon'"):
        client.handle("e1").wait(timeout="soon")
    assert not seen


def test_a_server_that_says_when_to_come_back_is_believed(wired: Wired) -> None:
    client, seen = wired(
        problem(429, "DS-330", "slow down", **{"Retry-After": "0"}), httpx.Response(200, json=EXECUTION)
    )
    assert client.handle("e1").status().id == "e1"
    assert len(seen) == 2
    impatient, _ = wired(problem(429, "DS-330", "slow down", **{"Retry-After": "60"}))
    with pytest.raises(TooManyRequests) as caught:
        impatient.handle("e1").status()
    assert caught.value.after == 60


def test_the_key_goes_into_a_header(wired: Wired) -> None:
    client, seen = wired(httpx.Response(200, json=EXECUTION))
    client.handle("e1").status()
    assert seen[0].headers["authorization"] == "Bearer the-key"
    assert "the-key" not in str(seen[0].url)
    assert "the-key" not in repr(client)


def test_ids_and_names_cannot_leave_their_place_in_the_path(wired: Wired) -> None:
    client, seen = wired(httpx.Response(200, json=EXECUTION))
    client.handle("../keys?x=1").status()
    assert seen[0].url.raw_path == b"/v1/executions/..%2Fkeys%3Fx%3D1"


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (401, "DS-310", Unauthenticated),
        (403, "DS-320", Forbidden),
        (404, "DS-130", NotFound),
        (409, "DS-160", Conflict),
        (507, "DS-220", StoreFull),
        (503, "DS-260", BadConfiguration),
        (500, "DS-900", InternalError),
        (409, "DS-777", Conflict),
        (418, "DS-777", UsageError),
    ],
)
def test_a_problem_is_the_exception_of_its_code(status: int, code: str, kind: type[DalSegnoError]) -> None:
    made = error_of(Problem(status, "so it is", code))
    assert type(made) is kind
    assert made.code == code
    assert str(made) == "so it is"


def test_an_unknown_code_leaves_its_class_alone() -> None:
    error_of(Problem(409, "", "DS-777"))
    assert Conflict.code == "DS-160"


def test_something_else_that_answers_is_named(wired: Wired) -> None:
    client, _ = wired(httpx.Response(404, text="<html>nginx</html>", headers={"Server": "nginx"}))
    with pytest.raises(
        NotThisServer, match="is not a Dal Segno server: it answered 404 to GET /v1/executions/e1"
    ):
        client.handle("e1").status()


def test_another_version_is_named(wired: Wired) -> None:
    client, _ = wired(httpx.Response(200, json={"id": 7}, headers={"Server": "dalsegno/9.9.9"}))
    with pytest.raises(NotThisServer, match=r"is version 9\.9\.9, this client"):
        client.handle("e1").status()


def test_a_proxy_whose_server_is_away_is_asked_again(wired: Wired) -> None:
    client, seen = wired(httpx.Response(502, text="bad gateway"), httpx.Response(200, json=EXECUTION))
    assert client.handle("e1").status().id == "e1"
    assert len(seen) == 2


def test_unavailable_is_one_for_whoever_runs_things() -> None:
    assert issubclass(ServerUnreachable, Unavailable)


@pytest.mark.parametrize("url", ["http://there:1/", "http://there:1/v1", "http://there:1/v1/"])
async def test_a_url_may_be_written_in_several_ways(url: str) -> None:
    transport = Transport(url)
    assert transport.url == "http://there:1"
    await transport.close()
