"""``--retention`` and ``--streams``: what a process is told about its store and its streams."""

from __future__ import annotations

import signal

import httpx
import pytest

from dalsegno import Client
from dalsegno.cli.errors import Refusal
from dalsegno.cli.process.serve import read_retention_options
from tests.cli.conftest import Invoke
from tests.cli.documents import HELLO, LONG_WAIT
from tests.cli.programs import PATIENCE, Programs
from tests.cli.test_server import announced
from tests.waiting import until

DAY = 86_400.0


def test_one_duration_is_for_all_states_others_are_by_state() -> None:
    assert read_retention_options(["30d"]) == 30 * DAY
    assert read_retention_options(["completed=7d", "FAILED=12h"]) == {"COMPLETED": 7 * DAY, "FAILED": DAY / 2}


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (["soon"], "'soon'"),
        (["RUNNING=7d"], "names no state in which executions end"),
        (["7d", "FAILED=1d"], "names no state"),
        (["FAILED=1d", "FAILED=2d"], "twice"),
    ],
)
def test_what_makes_no_sense_is_refused(written: list[str], said: str, invoke: Invoke) -> None:
    with pytest.raises(Refusal, match=said):
        read_retention_options(written)
    options = [word for each in written for word in ("--retention", each)]
    refused = invoke("server", *options)
    assert (refused.exit_code, said in refused.stderr) == (2, True), refused.output


def test_a_server_removes_what_ended_and_refuses_streams_beyond_the_number(programs: Programs) -> None:
    server = programs.begin(
        "server", "--port", "0", "--json", "--retention", "COMPLETED=0s", "--streams", "1"
    )
    url = announced(server)["url"]
    with Client(url) as client, httpx.Client(base_url=url, timeout=PATIENCE) as http:
        client.deploy(LONG_WAIT)
        waits = client.start("sleeper")
        path = f"/v1/executions/{waits.id}/stream"
        with http.stream("GET", path) as first:
            assert first.status_code == 200
            assert http.get(path).status_code == 503
        client.deploy(HELLO)
        done = client.start("hello", name="Ada")
        until(lambda: http.get(f"/v1/executions/{done.id}").status_code == 404, "what completed is removed")
        assert waits.status().state == "RUNNING"
    server.send(signal.SIGTERM)
    assert server.finish()[0] == 0
