"""What a run came to is what one runs it for: it goes to the terminal, also where pytest captures what tests print."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Report = Callable[[str], None]


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    """``report(text)`` shows the text at once."""

    def show(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}", flush=True)  # noqa: T201 - see above

    return show
