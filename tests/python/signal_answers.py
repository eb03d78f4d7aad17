"""Classes of payloads in a module of their own."""

from __future__ import annotations

import dataclasses

import msgspec


@dataclasses.dataclass
class Answer:
    text: str


class Remark(msgspec.Struct):
    text: str
