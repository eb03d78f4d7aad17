"""Fixtures of the vault's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dalsegno.engine.secrets import KeySource, NewCredential, Vault
from dalsegno.engine.secrets.keys import FILE_VARIABLE, KEY_VARIABLE
from dalsegno.ports.stack import Stack
from dalsegno.wiring import open_stack
from tests.servers.sqlite import empty_sqlite


@pytest.fixture(autouse=True)
def no_key_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (KEY_VARIABLE, FILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=["memory", "sqlite"])
async def stack(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stack]:
    url = "memory:" if request.param == "memory" else empty_sqlite(tmp_path / "store.db")
    opened = await open_stack(url)
    yield opened
    await opened.close()


def vault_with(stack: Stack, *keys: str) -> Vault:
    """A process that knows these keys."""
    known = KeySource("nowhere:", {KEY_VARIABLE: ",".join(keys)})
    return Vault(stack.records, stack.archive, known, stack.clock)


def bearer(name: str = "crm", token: str = "t0ken-of-the-crm", **changes: object) -> NewCredential:
    settings: dict[str, object] = {
        "type": "bearer",
        "fields": {"token": token},
        "hosts": ("api.example.com",),
        "workflows": ("*",),
    }
    return NewCredential(name=name, **{**settings, **changes})  # type: ignore[arg-type]
