"""The pytest plugin: fixtures for tests of workflows.

It is loaded by entry point; no other module here needs pytest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from dalsegno import App
    from dalsegno.testing import TestKit


@pytest.fixture
def dalsegno_app() -> App:
    """The application under test. Override it in your ``conftest.py`` to test your own."""
    from dalsegno import App  # noqa: PLC0415 - pytest loads this module in every project that has Dal Segno installed

    return App("memory:")


@pytest.fixture
def workflows(dalsegno_app: App) -> Iterator[TestKit]:
    """A test kit around ``dalsegno_app``: memory store, running worker, a clock that skips ahead, mocked tasks."""
    from dalsegno.testing import TestKit  # noqa: PLC0415 - the same

    with TestKit(dalsegno_app) as kit:
        yield kit
