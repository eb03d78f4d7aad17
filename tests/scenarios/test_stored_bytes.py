"""What one execution may store: its limit, its error, and what does not count towards it for ever."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from dalsegno.engine.settings import EngineLimits
from dalsegno.errors import KeyReused, LimitExceeded
from dalsegno.handle import Handle
from tests.scenarios.documents import aggregator, edit, graph, split, task
from tests.scenarios.stage import Stage, all_events

MEBIBYTE = 1024 * 1024
LIMITS = EngineLimits(stored_bytes=8 * MEBIBYTE, value_bytes=64 * MEBIBYTE)

pytestmark = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)


@pytest.fixture
def stage(store_url: str) -> Iterator[Stage]:
    with Stage(store_url, limits=LIMITS) as running:
        yield running


GROWING = """
const grown = []
for (let turn = 0; turn < 100; turn = turn + 1) {
    grown.push("x".repeat(1000000) + turn)
    await Task.run("echo", turn)
}
return grown.length
"""

CHANGING = """
let state = ""
for (let turn = 0; turn < 40; turn = turn + 1) {
    state = "x".repeat(400000) + turn
    await Task.run("echo", turn)
}
return state.length
"""


def test_a_list_that_grows_turn_by_turn_ends_with_an_error_that_names_the_limit(stage: Stage) -> None:
    ended = stage.run_script(GROWING)
    assert ended.state == "FAILED"
    assert ended.error["code"] == "LimitExceeded"
    assert "stored_bytes of 8,388,608" in ended.error["message"]


def test_a_large_value_may_change_turn_by_turn(stage: Stage) -> None:
    """16 MB in all, never more than 0.8 MB at a time: blobs of earlier snapshots are removed."""
    assert stage.run_script(CHANGING).output == 400_002


def test_a_snapshot_is_measured_before_it_is_encoded(stage: Stage) -> None:
    """A gigabyte and a half of references to one text, which is short enough to be written out each time."""
    source = """
const text = "x".repeat(32000)
const all = []
for (let n = 0; n < 50000; n = n + 1) { all.push(text) }
await Task.run("echo", 1)
return all.length
"""
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + 700 * MEBIBYTE, resource.RLIM_INFINITY))
    try:
        ended = stage.run_script(source)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert ended.state == "FAILED"
    assert ended.error["code"] == "LimitExceeded"
    assert "more memory than there is" not in ended.error["message"]


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


WAITS_FOR_ANOTHER = """
const first = await Signal.next("first")
return first
"""


def test_signals_count_towards_what_an_execution_stores(stage: Stage) -> None:
    """Each is below the size of a blob: without their charge they would fill the disk."""
    handle = stage.start_script(WAITS_FOR_ANOTHER)
    payload = "x" * 200_000
    with pytest.raises(LimitExceeded, match=r"stored_bytes of 8,388,608"):  # noqa: PT012 - one of them is refused
        for _ in range(60):
            handle.signal("never", payload)
    for _ in range(8):
        with pytest.raises(LimitExceeded):
            handle.signal("never", payload)
    count = sum(event.kind == "SignalReceived" for event in all_events(handle))
    assert count == pytest.approx(20, abs=6)
    handle.signal("first", "small")
    assert stage.end_of(handle).output == "small"


def test_a_signal_that_is_sent_again_counts_once(stage: Stage) -> None:
    handle = stage.start_script(WAITS_FOR_ANOTHER)
    for _ in range(40):
        handle.signal("never", "x" * 200_000, id="the-same")
    handle.signal("never", "y" * 200_000, id="another")
    handle.signal("first", 1)
    assert stage.end_of(handle).output == 1


def test_signals_that_nobody_takes_are_refused_above_a_number(store_url: str) -> None:
    with Stage(store_url, limits=EngineLimits(waiting_signals=5)) as stage:
        handle = stage.start_script(WAITS_FOR_ANOTHER)
        for number in range(5):
            handle.signal("never", number, id=f"signal-{number}")
        for _ in range(2):
            with pytest.raises(
                LimitExceeded, match=r"5 signals wait in execution .* waiting_signals; nothing was sent"
            ):
                handle.signal("never", 6)
        handle.signal("never", 4, id="signal-4")
        with pytest.raises(KeyReused):
            handle.signal("never", 5, id="signal-4")
        assert sum(event.kind == "SignalReceived" for event in all_events(handle)) == 5


def _waiting(stage: Stage, handle: Handle) -> int:
    client = stage.app.engine.client
    return stage.app.host.call(client.stack.ledger.waiting_signals(handle.id, 10))


def test_signals_that_are_taken_make_room(store_url: str) -> None:
    source = "for (let n = 0; n < 20; n = n + 1) { await Signal.next('next') }\nreturn 'done'"
    with Stage(store_url, limits=EngineLimits(waiting_signals=2)) as stage:
        handle = stage.start_script(source)
        for number in range(20):
            handle.signal("next", number)
            stage.until("it is taken", handle, lambda: not _waiting(stage, handle))
        assert stage.end_of(handle).output == "done"


def test_many_tokens_that_come_and_go_do_not_add_up(stage: Stage) -> None:
    """Thirty megabytes of tokens in all: what is consumed is not stored any more."""
    wide = split([{"text": "x" * 3000, "n": n} for n in range(1000)])
    logs = {f"l{n}": {"type": "log", "parameters": {"message": "seen"}} for n in range(10)}
    path = " > ".join(["s", *logs, "g"])
    ended = stage.run(graph(path, {"s": wide, **logs, "g": aggregator(output="$item.n")}))
    assert ended.state == "COMPLETED", ended.error


def test_outputs_of_nodes_count_together(stage: Stage) -> None:
    @stage.app.task
    async def produce(number: int) -> str:
        return f"{number:09}" * 30_000

    ended = stage.run(graph("s > a", {"s": split(list(range(60))), "a": task("produce", "$item")}))
    assert ended.state == "FAILED"
    assert "stored_bytes" in ended.error["message"]


def test_inputs_of_tasks_started_in_one_turn_count_together(stage: Stage) -> None:
    source = """
const text = "x".repeat(3000000)
return await Promise.all([1, 2, 3, 4].map(n => Task.run("echo", {n, text})))
"""
    ended = stage.run_script(source)
    assert ended.state == "FAILED"
    assert "started in one turn are more than the limit stored_bytes" in ended.error["message"]


def test_eighty_references_to_one_text_are_refused_before_they_are_encoded(stage: Stage) -> None:
    document = graph("a", {"a": edit({f"x{number}": "$trigger.text" for number in range(80)})})
    ended = stage.run(document, {"text": "x" * 2_000_000})
    assert ended.state == "FAILED"
    assert "more than 67,108,864 bytes of JSON, the limit value_bytes" in ended.error["message"]
