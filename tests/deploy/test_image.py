"""The image, as far as it can be looked at without building it."""

from __future__ import annotations

import os
import re

from dalsegno.version import __version__
from tests.deploy.files import COMPOSE, DEPLOY, ROOT, containers, documents

IMAGE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


def copied() -> set[str]:
    """What is copied from the repository, not from another stage."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", IMAGE, re.MULTILINE)
    return {source for line in lines for source in line.split()[:-1]}


def test_what_is_copied_exists_and_is_let_through() -> None:
    ignore = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    let_through = {line.removeprefix("!") for line in ignore if line.startswith("!")}
    assert copied() == let_through
    assert [name for name in copied() if not (ROOT / name).exists()] == []


def test_build_has_what_the_package_is_made_of() -> None:
    metadata = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    named = re.findall(r"^(?:readme = |license-files = \[)(.+)", metadata, re.MULTILINE)
    files = {name for line in named for name in re.findall(r'"([^"]+)"', line)}
    assert files
    assert files <= copied()


def test_both_stages_have_the_same_base() -> None:
    assert len(set(re.findall(r"^FROM (\S+)", IMAGE, re.MULTILINE))) == 1


def test_commands_are_started_by_a_program_that_is_there() -> None:
    assert '\nENTRYPOINT ["with-secrets"]\n' in IMAGE
    assert os.access(DEPLOY / "with-secrets", os.X_OK)


def test_images_are_named_alike() -> None:
    """Kubernetes gets a version: with `latest` two pods may run different programs."""
    named = {container["image"] for _, _, container in containers()}
    assert named == {f"dalsegno:{__version__}"}
    services = documents(COMPOSE)[0]["services"]
    assert {each["image"].partition(":")[0] for each in services.values()} == {"dalsegno", "postgres"}
