"""What a credential adds to requests of the ``http`` node: a header, or a parameter of the address."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from yarl import URL

from dalsegno.errors import CredentialRefused
from dalsegno.ports.secrets import Credential


@dataclass(frozen=True, slots=True, repr=False)
class Authorisation:
    """``header`` and ``query`` are a name and a value; a credential gives one of them."""

    header: tuple[str, str] | None = None
    query: tuple[str, str] | None = None

    def in_address(self, url: URL) -> URL:
        """Where the server itself sent us to (a redirect, the next page) it seldom repeats the parameter."""
        return url.update_query({self.query[0]: self.query[1]}) if self.query else url

    def out_of_address(self, url: URL) -> URL:
        return url.without_query_params(self.query[0]) if self.query else url


def authorised_by(credential: Credential, url: URL) -> Authorisation:
    """Raises CredentialRefused before anything is sent, where the credential is not for this host."""
    if not credential.permits_host(url.host or "", url.port):
        listed = ", ".join(credential.hosts) or "none"
        raise CredentialRefused(
            f"credential '{credential.name}' may not be sent to {url.host}; its hosts: {listed}. Nothing was sent"
        )
    match credential.type:
        case "bearer":
            return Authorisation(header=("Authorization", f"Bearer {credential['token']}"))
        case "basic":
            return Authorisation(
                header=("Authorization", basic(credential["username"], credential["password"]))
            )
        case "header":
            return Authorisation(header=(credential.sent_as, credential["value"]))
        case "query":
            return Authorisation(query=(credential.sent_as, credential["value"]))
    raise CredentialRefused(
        f"credential '{credential.name}' is of type '{credential.type}', which does not say how a request carries it; "
        "use one of type 'bearer', 'basic', 'header' or 'query'"
    )


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
