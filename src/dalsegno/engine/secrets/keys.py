"""Keys that seal and open values: AES-256-GCM, each with an id that tells nothing about it.

The first key of a ring seals, every key opens: that is what makes a rotation possible while workers run.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec import Struct

from dalsegno.errors import BadConfiguration, SecretUnreadable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
SHORTEST_PASSPHRASE = 12
_SALT = b"dalsegno secret key, version 1"
"""The same everywhere: processes that share a passphrase must come to the same key without asking each other. So a
passphrase must be long; a made key needs no such care."""


class Sealed(Struct, frozen=True):
    """A value that only its key can open."""

    key: str
    """The id of that key."""
    nonce: bytes
    data: bytes


class SecretKey:
    __slots__ = ("_cached", "_material", "id")

    def __init__(self, material: bytes) -> None:
        self.id = sha256(b"dalsegno key id\0" + material).hexdigest()[:12]
        self._material = material
        self._cached: AESGCM | None = None

    @property
    def _cipher(self) -> AESGCM:
        if self._cached is None:
            # Imported with the first credential: it takes longer than the rest of the engine.
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - see above

            self._cached = AESGCM(self._material)
        return self._cached

    def derived(self, label: bytes) -> bytes:
        """A key for another purpose: HKDF-SHA256 with an empty salt, the label as its info, one block."""
        pseudorandom = hmac.digest(bytes(KEY_BYTES), self._material, "sha256")
        return hmac.digest(pseudorandom, label + b"\x01", "sha256")

    def seal(self, text: str, bound_to: bytes) -> Sealed:
        """``bound_to`` is not stored with it; whoever opens it must give the same."""
        nonce = os.urandom(NONCE_BYTES)
        return Sealed(self.id, nonce, self._cipher.encrypt(nonce, text.encode(), bound_to))

    def open(self, sealed: Sealed, bound_to: bytes) -> str:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - see above

        try:
            return self._cipher.decrypt(sealed.nonce, sealed.data, bound_to).decode()
        except (InvalidTag, ValueError):
            raise SecretUnreadable(
                "it was damaged or changed in the store by somebody without the key; set it again"
            ) from None


class Keyring:
    """At least one key."""

    __slots__ = ("_by_id", "first")

    def __init__(self, materials: Sequence[bytes]) -> None:
        keys = [SecretKey(material) for material in materials]
        self.first = keys[0]
        self._by_id = {key.id: key for key in keys}

    def find(self, id: str) -> SecretKey | None:
        return self._by_id.get(id)

    def ids(self) -> list[str]:
        return list(self._by_id)


def new_key() -> str:
    """A key as it is written into the environment or a file."""
    return base64.urlsafe_b64encode(os.urandom(KEY_BYTES)).decode().rstrip("=")


def read_keys(text: str, where: str) -> Keyring | None:
    """Keys separated by commas or lines, without lines that begin with ``#``; None if there is none. ``where`` is for
    messages."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    entries = [entry.strip() for line in lines for entry in line.split(",") if entry.strip()]
    return Keyring([_material(entry, where) for entry in entries]) if entries else None


def _material(entry: str, where: str) -> bytes:
    plain = _decoded(entry)
    if plain is not None:
        return plain
    if len(entry) < SHORTEST_PASSPHRASE:
        raise BadConfiguration(
            f"{where} holds a passphrase of {len(entry)} characters; use at least {SHORTEST_PASSPHRASE}, or better a "
            "key made by `dalsegno credentials new-key`"
        )
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt  # noqa: PLC0415 - only for passphrases

    return Scrypt(salt=_SALT, length=KEY_BYTES, n=2**15, r=8, p=1).derive(entry.encode())


def _decoded(entry: str) -> bytes | None:
    """The 32 bytes that 43 characters of base64 stand for; anything else is a passphrase."""
    text = entry.rstrip("=")
    if len(text) != 43 or not re.fullmatch(r"[A-Za-z0-9+/_-]+", text):
        return None
    try:
        return base64.b64decode(text.translate(str.maketrans("-_", "+/")) + "=", validate=True)
    except binascii.Error:
        return None
