"""Where the keys come from: the environment, a file that it names, or a file beside the store.

A key file beside a SQLite store is read where it exists. It is made only when somebody allows it (``may_make``) and
sets the first credential: a server must not invent a key that the workers do not have.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from dalsegno.engine.secrets.keys import Keyring, new_key, read_keys
from dalsegno.errors import BadConfiguration, NoSecretKey

KEY_VARIABLE = "DALSEGNO_SECRET_KEY"
FILE_VARIABLE = "DALSEGNO_SECRET_KEY_FILE"
SUFFIX = ".key"

logger = logging.getLogger("dalsegno.secrets")


class KeySource:
    def __init__(self, url: str, environment: Mapping[str, str] | None = None) -> None:
        self.may_make = False
        self.made: Path | None = None
        """The file that this process has made."""
        self._environment = os.environ if environment is None else environment
        self._beside = _beside(url)
        self._passing = url.startswith("memory:")
        self._ring: Keyring | None = None
        self._text = ""

    @property
    def is_read(self) -> bool:
        return self._ring is not None

    @property
    def is_configured(self) -> bool:
        """Whether processes share a key for this store; nothing is read but whether there is a file. One of a store in
        memory does not count: it ends with the process."""
        if self._passing:
            return False
        named = any(self._environment.get(name, "").strip() for name in (FILE_VARIABLE, KEY_VARIABLE))
        return named or (self._beside is not None and self._beside.exists())

    @property
    def may_be_configured(self) -> bool:
        return not self._passing

    def ring(self, *, again: bool = False) -> Keyring:
        """Read on first use; ``again`` looks whether a file has other keys by now. Raises NoSecretKey."""
        if self._ring is None or again:
            self._ring = self._read() or self._own()
        if self._ring is None:
            raise NoSecretKey(self._explanation())
        return self._ring

    def ring_or_make(self, *, is_first: bool) -> Keyring:
        """For the first credential of a store a key may be made, where that is allowed."""
        if is_first and self.may_make and self._beside is not None and self._read() is None:
            add_key(self._beside)
            self.made = self._beside
        return self.ring(again=True)

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
        ring = self._parsed(written, KEY_VARIABLE)
        if ring is None and self._beside is not None and self._beside.exists():
            return self._parsed(_content(self._beside, "the key beside the store"), str(self._beside))
        return ring

    def _parsed(self, text: str, where: str) -> Keyring | None:
        """A passphrase costs a tenth of a second each time it is turned into a key."""
        if self._ring is not None and text == self._text:
            return self._ring
        found = read_keys(text, where)
        if found is not None:
            self._text = text
        return found

    def _own(self) -> Keyring | None:
        """What is in memory ends with the process, and so may its key."""
        return self._ring or read_keys(new_key(), "memory") if self._passing else None

    def _explanation(self) -> str:
        beside = f", or {self._beside}" if self._beside is not None else ""
        return (
            f"there is no key for credentials: set {KEY_VARIABLE} or {FILE_VARIABLE}{beside} for every process that "
            "uses this store; `dalsegno credentials new-key` makes one"
        )


def add_key(path: Path) -> str:
    """Puts a new key before those in the file, which it makes for its owner alone. Complete or not at all."""
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
        reason = getattr(error, "strerror", None) or "it is no text"
        raise BadConfiguration(f"{what}: {path} cannot be read: {reason}") from None
    if mode & 0o077:
        logger.warning("the key file %s can be read by others; `chmod 600 %s` mends it", path, path)
    return text


def _beside(url: str) -> Path | None:
    parts = urlsplit(url)
    if parts.scheme != "sqlite" or len(parts.path) < 2:
        return None
    return Path(unquote(parts.path[1:]) + SUFFIX)
