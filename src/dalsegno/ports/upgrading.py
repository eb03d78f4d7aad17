"""What a store knows of the processes on it when something is to be taken away that older ones need."""

from __future__ import annotations

from msgspec import Struct


class ConnectedProcess(Struct, frozen=True):
    """One that is connected, as far as its connections tell."""

    name: str
    """Empty where they do not say."""
    version: str | None
    address: str | None
    """None where it is not known, or not shown to whoever asks."""
