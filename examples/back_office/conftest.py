"""Says which application is under test."""

from __future__ import annotations

import pytest

from back_office import app
from dalsegno import App


@pytest.fixture
def dalsegno_app() -> App:
    return app
