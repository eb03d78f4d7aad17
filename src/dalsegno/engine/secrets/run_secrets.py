"""What a run's context does with credentials: resolves them, and remembers what must not leave the run."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from dalsegno.engine.secrets.redaction import Redactor
from dalsegno.engine.secrets.vault import Vault
from dalsegno.errors import CredentialNotFound, InternalError, Unavailable, UsageError
from dalsegno.ports.node import NodeError
from dalsegno.ports.secrets import Credential

SERVICE = "secrets"


class UsesCredentials(ABC):
    """Part of every context. ``secrets`` is None until the run resolves its first credential."""

    __slots__ = ("secrets",)

    services: Mapping[str, Any]
    secrets: Redactor | None

    @property
    def credential_name(self) -> str | None:
        """The credential that the document gives to the node."""
        return None

    @abstractmethod
    async def _asking(self) -> tuple[str, str]:
        """The workflow that asks, and the content hash of its definition: both must be permitted to use the credential.
        No hash for a task that runs on its own."""

    async def acredential(self, name: str | None = None) -> Credential:
        wanted = name if name is not None else self.credential_name
        if wanted is None:
            raise CredentialNotFound(
                "no credential is named here: give its name, or the node's `credentials` in the document"
            )
        try:
            found = await vault_in(self.services).resolve(wanted, *await self._asking())
        except Unavailable as error:
            # Nothing has happened yet: another attempt may find the store again.
            raise NodeError(str(error), code=error.code) from error
        redactor = self.secrets or Redactor()
        redactor.learn(found)
        self.secrets = redactor
        return found

    def credential(self, name: str | None = None) -> Credential:
        loop = vault_in(self.services).loop
        if loop is None or loop is _running_loop():
            raise UsageError("in an async function write `await ctx.acredential(…)`; this one would block it")
        return asyncio.run_coroutine_threadsafe(self.acredential(name), loop).result()

    def redact(self, text: str) -> str:
        return text if self.secrets is None else self.secrets.text(text)


def vault_in(services: Mapping[str, Any]) -> Vault:
    vault = services.get(SERVICE)
    if not isinstance(vault, Vault):
        raise InternalError("the engine gives nodes no vault as service 'secrets'")
    return vault


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
