"""Testing: a kit to run workflows in tests, a settable clock, the contract suite, the simulator."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dalsegno.testing.clock import FakeClock
    from dalsegno.testing.kit.crashes import Crash
    from dalsegno.testing.kit.diagnosis import Stuck
    from dalsegno.testing.kit.kit import TestKit
    from dalsegno.testing.kit.mocking import Call, Mock

__all__ = ["Call", "Crash", "FakeClock", "Mock", "Stuck", "TestKit"]

_MODULES = {
    "Call": "dalsegno.testing.kit.mocking",
    "Crash": "dalsegno.testing.kit.crashes",
    "FakeClock": "dalsegno.testing.clock",
    "Mock": "dalsegno.testing.kit.mocking",
    "Stuck": "dalsegno.testing.kit.diagnosis",
    "TestKit": "dalsegno.testing.kit.kit",
}


def __getattr__(name: str) -> Any:
    """Load a name on first use. The simulator and the contract suite do not need the kit, nor the kit them."""
    if name not in _MODULES:
        raise AttributeError(f"module 'dalsegno.testing' has no attribute {name!r}")
    found = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found
    return found
