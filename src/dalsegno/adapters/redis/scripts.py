"""The Lua scripts, read once. A script is the numbered files, which they share, and its own file at the end."""

from __future__ import annotations

from hashlib import sha1
from importlib.resources import files


class Script:
    """A script's text, and the name under which the server keeps it."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.sha = sha1(text.encode(), usedforsecurity=False).hexdigest()


def load() -> dict[str, Script]:
    folder = files("dalsegno.adapters.redis") / "lua"
    texts = {
        entry.name.removesuffix(".lua"): entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".lua")
    }
    shared = "\n".join(text for name, text in texts.items() if name[0].isdigit())
    own = {name: text for name, text in texts.items() if not name[0].isdigit()}
    return {name: Script(name, f"{shared}\n{text}") for name, text in own.items()}


SCRIPTS = load()
