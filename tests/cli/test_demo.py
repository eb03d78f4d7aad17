"""`make demo` as it is: killed, resumed, proved."""

from __future__ import annotations

from pathlib import Path

from tests.cli.programs import Programs

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_demo_proves_that_every_result_was_recorded_once(programs: Programs) -> None:
    code, out, err = programs.python(str(DEMO)).finish(patience=120)
    assert code == 0, out + err
    assert "runs for 26 commits" in out
    assert "The proof failed" not in out
