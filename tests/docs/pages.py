"""The documentation as data: its pages, and the fenced blocks of a page with what was said about them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_MARK = re.compile(r"<!--\s*(?P<name>[a-z ]+?)(?::\s*(?P<value>[^<>]*?))?\s*-->\s*\Z")
_TITLE = re.compile(r'title="([^"]+)"')


@dataclass(frozen=True)
class Block:
    """A fenced block. ``mark`` is the comment just before it: ``fragment``, ``invalid: rule``, ``exit: code`` or
    ``not run: reason``. ``output`` is the text block just behind it."""

    page: Path
    line: int
    language: str
    title: str | None
    mark: str
    value: str
    body: str
    output: str | None

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    return sorted(DOCS.rglob("*.md"))


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = list(_FENCE.finditer(text))
    return [
        _block(page, text, match, following)
        for match, following in zip(found, [*found[1:], None], strict=False)
    ]


def _block(page: Path, text: str, match: re.Match[str], following: re.Match[str] | None) -> Block:
    language, _, attributes = match["info"].strip().partition(" ")
    title = _TITLE.search(attributes)
    mark = _MARK.search(text[: match.start()])
    output = None
    if following is not None and following["info"].strip() == "text":
        between = text[match.end() : following.start()]
        output = _dedented(following) if not between.strip() else None
    return Block(
        page,
        text.count("\n", 0, match.start()) + 1,
        language,
        title.group(1) if title else None,
        mark["name"] if mark else "",
        (mark["value"] or "") if mark else "",
        _dedented(match),
        output,
    )


def _dedented(match: re.Match[str]) -> str:
    indent = match["indent"]
    return "".join(line.removeprefix(indent) for line in match["body"].splitlines(keepends=True))


def fits(expected: str, actual: str) -> bool:
    """Whether an output is as shown: ``…`` stands for anything, ids are alike, spaces at line ends do not count."""
    pattern = ".*".join(re.escape(part) for part in _plain(expected).split("…"))
    return re.fullmatch(pattern, _plain(actual), re.DOTALL) is not None


def _plain(output: str) -> str:
    lines = [line.rstrip() for line in output.strip().splitlines()]
    return re.sub(r"\b[0-9a-f]{32}\b", "<id>", "\n".join(lines))
