"""Renews the files of Swagger UI, which the page ``/docs`` consists of, from the package that carries them.

    npm pack swagger-ui-dist
    python -m scripts.vendor_swagger swagger-ui-dist-*.tgz

Only what the page needs is kept, unchanged, with its licences. Afterwards look at ``/docs`` in a browser: it must work
without anything in the console about the content security policy.
"""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "src/dalsegno/server/static/swagger"
FILES = (
    "swagger-ui-bundle.js",
    "swagger-ui-bundle.js.LICENSE.txt",
    "swagger-ui.css",
    "favicon-32x32.png",
    "LICENSE",
    "NOTICE",
)


def main(package: str) -> None:
    FOLDER.mkdir(exist_ok=True)
    with tarfile.open(package) as archive:
        for name in FILES:
            (FOLDER / name).write_bytes(_member(archive, name))
        version = json.loads(_member(archive, "package.json"))["version"]
    (FOLDER / "VERSION").write_text(f"{version}\n", encoding="utf-8")


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    found = archive.extractfile(f"package/{name}")
    if found is None:
        sys.exit(f"{name} is no file of this package; is it swagger-ui-dist?")
    return found.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
