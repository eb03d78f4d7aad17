"""Results of storing a credential and approving a definition, the same for a store and a server."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from dalsegno.engine.secrets import CredentialInfo
from dalsegno.engine.secrets.definition_approvals import ListedDefinition


class SavedCredential(NamedTuple):
    credential: CredentialInfo
    is_new: bool


class ApprovedDefinition(Struct, frozen=True):
    workflow: str
    version: int
    hash: str


class DefinitionList(Struct, frozen=True):
    """Current and aliased versions that credentials list by name."""

    items: tuple[ListedDefinition, ...]
    grace_until: float | None = None
    """Time until which definitions and credentials older than approvals work without one."""
