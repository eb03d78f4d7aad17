"""A plugin that lets pytest import all test modules and make no tests of them: ``-p tests.compiling``. What is imported
is compiled and kept."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem() -> list[pytest.Item]:
    return []
