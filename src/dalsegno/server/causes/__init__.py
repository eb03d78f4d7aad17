"""What stands behind each error code: its cause and its cure, in plain words.

A code without an entry here fails the documentation's tests.
"""

from __future__ import annotations

from dalsegno.server.causes.nodes import NODE_CODES
from dalsegno.server.causes.operating import OPERATING
from dalsegno.server.causes.serving import SERVING
from dalsegno.server.causes.usage import USAGE

__all__ = ["CAUSES", "NODE_CODES"]

CAUSES: dict[str, tuple[str, str]] = {**USAGE, **OPERATING, **SERVING}
