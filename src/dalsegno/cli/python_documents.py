"""Python workflows as something to deploy: each one that a file defines, compiled when the file was imported."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dalsegno.cli.documents import Document, read_document
from dalsegno.cli.modules import PYTHON, programs_in
from dalsegno.cli.problems import Refusal
from dalsegno.lang.python import PythonProgram


@dataclass(frozen=True, slots=True)
class PythonDocument(Document):
    program: PythonProgram


def read_sources(files: list[str], server: str | None) -> list[Document]:
    """Everything that the files hold, in their order."""
    return [found for file in files for found in _read(file, server)]


def _read(file: str, server: str | None) -> list[Document]:
    if not file.endswith(PYTHON):
        return [read_document(file)]
    if server is not None:
        raise Refusal(
            f"{file} holds Python workflows, whose code must be where it runs",
            f"Start the server and its workers with --app {file}: they store its workflows themselves.",
        )
    programs = programs_in(file)
    if not programs:
        raise Refusal(
            f"{file} defines no workflows",
            "Write @app.workflow before an async function, or give the file that defines them.",
        )
    text = Path(file).read_bytes()
    return [PythonDocument(file, text, program.name, program) for program in programs]
