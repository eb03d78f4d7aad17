"""A script that is retried knows which try it is."""

from __future__ import annotations

from tests.scenarios.stage import Stage

SOURCE = """\
workflow tries(inputs) {
  if (Context.attempt < 3) { throw "try " + Context.attempt }
  return Context.attempt
}
"""


def test_each_retry_counts_one_more(stage: Stage) -> None:
    stage.app.deploy_script(SOURCE)
    first = stage.end_of(stage.app.start("tries", {"padding": "x" * 10}))
    second = stage.end_of(first.handle.retry())
    third = stage.end_of(second.handle.retry())
    assert [first.error["message"], second.error["message"], third.output] == ["try 1", "try 2", 3]
