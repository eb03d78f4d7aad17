"""Scripts that want too much: named limits, large values, clear refusals."""

from __future__ import annotations

import pytest

from tests.scenarios.stage import Stage


def test_an_endless_loop_fails_with_a_named_limit(stage: Stage) -> None:
    ended = stage.run_script("while (true) { let x = 1 }")
    assert ended.error["code"] == "LimitExceeded"
    assert stage.run_script("return 1", name="after").output == 1


@pytest.mark.parametrize(
    "source",
    [
        'return "x".repeat(1000000000)',
        "function f(n) { return f(n + 1) }\nreturn f(0)",
        "let s = 'x'\nwhile (true) { s = s + s }",
    ],
)
def test_greed_fails_the_script_and_not_the_worker(stage: Stage, source: str) -> None:
    ended = stage.run_script(source)
    assert (ended.state, ended.error["code"]) == ("FAILED", "LimitExceeded")
    assert stage.run_script("return 1", name="after").output == 1


def test_a_large_result_travels_as_a_blob(stage: Stage) -> None:
    ended = stage.run_script('let big = await Task.run("echo", "x".repeat(600000))\nreturn big.length')
    assert ended.output == 600000


def test_a_large_variable_is_kept_across_an_await(stage: Stage) -> None:
    source = """
    let big = "ab".repeat(40000)
    await Task.run("hold", "door")
    return big.length
    """
    handle = stage.start_script(source)
    stage.until_comers(handle, "door")
    stage.door("door").open()
    assert stage.end_of(handle).output == 80000
