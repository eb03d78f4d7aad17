"""Secret keys: sealing and opening values with AES-256-GCM, and the sources of the keys.

- Each key has an id that reveals nothing about it. The first key of a ring seals, every key opens, so keys can be
  rotated while workers run.
- Keys come from the environment, a file that it names, or a file next to the store. A key file next to a SQLite store
  is read if it exists. It is created only if that is permitted (``may_make``) and the first credential is set: a
  server must not create a key that the workers do not have.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import logging
import os
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from dalsegno.errors import BadConfiguration, NoSecretKey, SecretUnreadable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
SHORTEST_PASSPHRASE = 12
_SALT = b"dalsegno secret key, version 1"
"""Fixed salt: processes that share a passphrase must derive the same key without communicating. A passphrase must
therefore be long; a generated key is random enough.
"""


class Sealed(Struct, frozen=True):
    """A value that only its key can open."""

    key: str
    """Id of that key."""
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
        """Derive a key for another purpose: HKDF-SHA256 with an empty salt, the label as its info, one block."""
        pseudorandom = hmac.digest(bytes(KEY_BYTES), self._material, "sha256")
        return hmac.digest(pseudorandom, label + b"\x01", "sha256")

    def seal(self, text: str, bound_to: bytes) -> Sealed:
        """Seal a text. ``bound_to`` is not stored; opening requires the same value."""
        nonce = os.urandom(NONCE_BYTES)
        return Sealed(self.id, nonce, self._cipher.encrypt(nonce, text.encode(), bound_to))

    def open(self, sealed: Sealed, bound_to: bytes) -> str:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - see above

        try:
            return self._cipher.decrypt(sealed.nonce, sealed.data, bound_to).decode()
        except (InvalidTag, ValueError):
            raise SecretUnreadable(
                "it was damaged, or changed in the store without the key; set it again"
            ) from None


class Keyring:
    """One or more keys; the first one seals."""

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
    """Return a new key in the form used in the environment and in files."""
    return base64.urlsafe_b64encode(os.urandom(KEY_BYTES)).decode().rstrip("=")


def read_keys(text: str, where: str) -> Keyring | None:
    """Parse keys separated by commas or lines, ignoring lines that begin with ``#``. None if there is none. ``where``
    is used in messages.
    """
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
    """Decode 43 characters of base64 to 32 bytes; None for anything else, which is a passphrase."""
    text = entry.rstrip("=")
    if len(text) != 43 or not re.fullmatch(r"[A-Za-z0-9+/_-]+", text):
        return None
    try:
        return base64.b64decode(text.translate(str.maketrans("-_", "+/")) + "=", validate=True)
    except binascii.Error:
        return None


KEY_VARIABLE = "DALSEGNO_SECRET_KEY"
FILE_VARIABLE = "DALSEGNO_SECRET_KEY_FILE"
SUFFIX = ".key"

logger = logging.getLogger("dalsegno.secrets")


class KeySource:
    def __init__(self, url: str, environment: Mapping[str, str] | None = None) -> None:
        self.may_make = False
        self.made: Path | None = None
        """The key file that this process has created."""
        self._environment = os.environ if environment is None else environment
        self._key_file = _key_file(url)
        self._is_memory = url.startswith("memory:")
        self._keyring: Keyring | None = None
        self._text = ""

    @property
    def is_read(self) -> bool:
        return self._keyring is not None

    @property
    def is_configured(self) -> bool:
        """Whether processes share a key for this store. Only the existence of a file is checked. A store in memory
        never counts: it ends with the process.
        """
        if self._is_memory:
            return False
        named = any(self._environment.get(name, "").strip() for name in (FILE_VARIABLE, KEY_VARIABLE))
        return named or (self._key_file is not None and self._key_file.exists())

    @property
    def may_be_configured(self) -> bool:
        return not self._is_memory

    def keyring(self, *, again: bool = False) -> Keyring:
        """Return the keys, reading them on first use; ``again`` reads changed files. Raises NoSecretKey."""
        if self._keyring is None or again:
            self._keyring = self._read() or self._own()
        if self._keyring is None:
            raise NoSecretKey(self._explanation())
        return self._keyring

    def keyring_or_new(self, *, is_first: bool) -> Keyring:
        """Return the keys. For the first credential of a store a key may be created, if permitted."""
        if is_first and self.may_make and self._key_file is not None and self._read() is None:
            add_key(self._key_file)
            self.made = self._key_file
        return self.keyring(again=True)

    def _read(self) -> Keyring | None:
        named = self._environment.get(FILE_VARIABLE, "").strip()
        written = self._environment.get(KEY_VARIABLE, "")
        if named and written.strip():
            raise BadConfiguration(f"{KEY_VARIABLE} and {FILE_VARIABLE} are both set; keep one of them")
        if named:
            found = self._parsed(_content(Path(named), FILE_VARIABLE), named)
            if found is None:
                raise BadConfiguration(f"{FILE_VARIABLE}: {named} holds no key; write one per line")
            return found
        keyring = self._parsed(written, KEY_VARIABLE)
        if keyring is None and self._key_file is not None and self._key_file.exists():
            return self._parsed(_content(self._key_file, "the key file of the store"), str(self._key_file))
        return keyring

    def _parsed(self, text: str, where: str) -> Keyring | None:
        """Parse keys, reusing the known ones for an unchanged text: deriving a key from a passphrase takes a tenth of
        a second.
        """
        if self._keyring is not None and text == self._text:
            return self._keyring
        found = read_keys(text, where)
        if found is not None:
            self._text = text
        return found

    def _own(self) -> Keyring | None:
        """Return a key for a store in memory: both end with the process."""
        return self._keyring or read_keys(new_key(), "memory") if self._is_memory else None

    def _explanation(self) -> str:
        default_file = f", or {self._key_file}" if self._key_file is not None else ""
        return (
            f"there is no key for credentials: set {KEY_VARIABLE} or {FILE_VARIABLE}{default_file} for every process "
            "that uses this store; `dalsegno credentials new-key` makes one"
        )


def add_key(path: Path) -> str:
    """Insert a new key before those in the file, which only its owner can read. The file is replaced atomically."""
    key = new_key()
    before = path.read_text() if path.exists() else ""
    draft = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{key}\n{before}")
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    return key


def _content(path: Path, what: str) -> str:
    try:
        text = path.read_text()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise BadConfiguration(f"{what}: {path} cannot be read: {reason}") from None
    if mode & 0o077:
        logger.warning("the key file %s can be read by other users; `chmod 600 %s` fixes that", path, path)
    return text


def _key_file(url: str) -> Path | None:
    parts = urlsplit(url)
    if parts.scheme != "sqlite" or len(parts.path) < 2:
        return None
    return Path(unquote(parts.path[1:]) + SUFFIX)
