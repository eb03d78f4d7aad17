"""Definitions: immutable, versioned programs."""

from __future__ import annotations

from msgspec import Struct


class Definition(Struct, frozen=True):
    """``source`` is the canonical JSON of the document; ``hash`` is its SHA-256, so equal programs are one version."""

    name: str
    version: int
    hash: str
    kind: str
    source: bytes
    created_at: float = 0.0
