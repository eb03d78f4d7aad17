"""The vault: credentials that people define, sealed in the store, opened only where a node or task runs."""

from __future__ import annotations

from dalsegno.engine.secrets.credentials import CredentialInfo, NewCredential
from dalsegno.engine.secrets.keys import KeySource
from dalsegno.engine.secrets.redaction import Redactor
from dalsegno.engine.secrets.vault import Rotation, Vault

__all__ = ["CredentialInfo", "KeySource", "NewCredential", "Redactor", "Rotation", "Vault"]
