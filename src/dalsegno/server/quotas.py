"""Quotas of API keys: starts and bytes per minute, open streams, stored executions. `key_usage` applies them."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from dalsegno.errors import InvalidInput

HIGHEST = 10**12
"""A quota can be set up to this."""


class Quotas(Struct, frozen=True, omit_defaults=True):
    """Of one key, or a server's defaults. None: the default (of a server: no limit); 0: no limit."""

    starts_per_minute: int | None = None
    bytes_per_minute: int | None = None
    open_streams: int | None = None
    stored_executions: int | None = None

    def over(self, defaults: Quotas) -> Quotas:
        """Its own values where it has some."""
        own = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return msgspec.structs.replace(defaults, **own) if own else defaults

    def check(self) -> None:
        """Raises InvalidInput."""
        for name, value in msgspec.structs.asdict(self).items():
            if value is not None and not 0 <= value <= HIGHEST:
                raise InvalidInput(f"a quota is a number from 0 (no limit) to {HIGHEST:,}; {name} is {value}")


NO_QUOTAS = Quotas()
NAMES: tuple[str, ...] = Quotas.__struct_fields__


def read_quotas(given: dict[str, Any]) -> Quotas:
    """Of names and numbers; raises InvalidInput."""
    wrong = next((name for name in given if name not in NAMES), None)
    if wrong is not None:
        raise InvalidInput(f"there is no quota '{wrong[:100]}'; there are {', '.join(NAMES)}")
    quotas = Quotas(**given)
    quotas.check()
    return quotas
