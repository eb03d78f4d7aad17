"""Recorded turns through a server: the handle reads what the handle of the store reads."""

from __future__ import annotations

import pytest

from dalsegno import App, Client
from tests.waiting import until

SCRIPT = """\
let sum = await Task.run("double", inputs.n)
sum = sum + await Task.run("double", sum)
await Signal.when("approved", {timeout: "1h"})
return sum
"""


@pytest.fixture(autouse=True)
def journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workflows that say nothing keep their last turns."""
    monkeypatch.setenv("DALSEGNO_JOURNAL", "failures")


def test_a_handle_reads_turns_of_a_server_as_of_the_store(client: Client, app: App) -> None:
    app.deploy_script(SCRIPT, "doubles")
    run = client.start("doubles", {"n": 2})
    until(lambda: (seen := run.picture()) is not None and seen.line == 3, "it waits for the signal")
    here = app.handle(run.id)
    assert [one.number for one in run.turns()] == [1, 2, 3]
    assert [(one.line, one.awaits, one.state) for one in run.turns()] == [
        (one.line, one.awaits, one.state) for one in here.turns()
    ]
    for number in (1, 2, 3):
        there, own = run.turn(number), here.turn(number)
        assert (there.functions, there.received, there.error) == (own.functions, own.received, own.error)
        assert [(one.name, one.input) for one in there.asked] == [(one.name, one.input) for one in own.asked]
    run.signal("approved")
    assert run.result(60) == 12
    last = run.turn(4)
    assert (last.state, last.is_before, last.output and last.output.value) == ("completed", True, 12)
