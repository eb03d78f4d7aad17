"""``make bench-brokers``: a small part of it."""

from __future__ import annotations

import pytest

from bench.brokers.run import main


@pytest.mark.soak
def test_split_and_timers_are_told_a_line_each(capfd: pytest.CaptureFixture[str]) -> None:
    """The queue of RabbitMQ never holds more than what may be opened at a time."""
    assert main(["split", "timers", "--part", "0.02"]) == 0
    lines = capfd.readouterr().out.splitlines()
    small, large = [line.split() for line in lines if line.startswith("split of")]
    assert (small[2], large[2]) == ("20,", "200,")
    depth = large[large.index("most") + 1]
    assert int(depth.rstrip(",")) <= 200
    assert len([line for line in lines if "planted:" in line]) == 3
