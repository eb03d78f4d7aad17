"""What every route works with: the application, its engine's client, and who is asking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from dalsegno.app import App
from dalsegno.engine.client import Client
from dalsegno.engine.engine import Engine
from dalsegno.server.settings import ServerSettings


@dataclass(slots=True)
class Office:
    """One server's belongings. Made once, found at ``request.app.state.office``."""

    app: App
    settings: ServerSettings

    @property
    def client(self) -> Client:
        return self.app.client

    @property
    def engine(self) -> Engine:
        return self.app.engine


def office_of(request: Request) -> Office:
    office: Office = request.app.state.office
    return office


TheOffice = Annotated[Office, Depends(office_of)]
