"""A virtual environment for each peer, made when it is first needed and kept in a cache."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from hashlib import sha256
from pathlib import Path

REQUIREMENTS = {
    "dbos": ("dbos==3.3.0",),
    "celery": ("celery[redis]==5.7.0",),
    "dramatiq": ("dramatiq[redis,rabbitmq]==2.2.1",),
}


class EnvironmentFailed(Exception):
    """The environment could not be made; the end of the installer's output is in the message."""


def default_cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "dalsegno-peers"


def interpreter(peer: str, cache: Path) -> Path:
    """The Python that has the peer installed. A folder without its stamp was left half made, and is made again."""
    folder = cache / folder_name(peer)
    stamp = folder / "installed"
    if not stamp.exists():
        print(f"making the environment of {peer} in {folder}", file=sys.stderr)
        venv.create(folder, clear=True)
        _install(folder, REQUIREMENTS[peer])
        stamp.touch()
    return folder / "bin" / "python"


def folder_name(peer: str) -> str:
    """Other requirements or another Python get another folder."""
    wanted = "\n".join((sys.version, *REQUIREMENTS[peer]))
    return f"{peer}-{sha256(wanted.encode()).hexdigest()[:12]}"


def _install(folder: Path, requirements: tuple[str, ...]) -> None:
    python = str(folder / "bin" / "python")
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    command.append("--disable-pip-version-check")
    done = subprocess.run([*command, *requirements], capture_output=True, text=True, check=False)
    if done.returncode:
        raise EnvironmentFailed(f"pip could not install {' '.join(requirements)}\n{done.stderr[-2000:]}")
