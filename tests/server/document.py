"""The OpenAPI document of the server, which takes seconds to render: one per process, for tests that read it."""

from __future__ import annotations

import functools
from typing import Any

from dalsegno.app import App
from dalsegno.server.application import create_application


@functools.cache
def openapi_document() -> dict[str, Any]:
    return create_application(App("memory:")).openapi()
