"""A live execution (its row, unfinished tokens and barriers), and a page of the walk that finds quiet ones."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from dalsegno.model.barrier import BarrierView
from dalsegno.model.execution import ExecutionView
from dalsegno.model.limits import LimitView
from dalsegno.model.token import TokenView


class Inspection(Struct, frozen=True):
    execution: ExecutionView
    tokens: tuple[TokenView, ...]
    barriers: tuple[BarrierView, ...]
    limits: tuple[LimitView, ...] = ()
    """The limits that its ready tokens are subject to, once per key and allowance."""


class Untouched(NamedTuple):
    names: tuple[str, ...]
    """Ids of the quiet executions found, ascending."""
    after: str
    """The cursor of the next page; empty at the end."""
