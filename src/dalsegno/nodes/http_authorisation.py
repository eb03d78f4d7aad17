"""What a credential adds to requests of the ``http`` node: a header, or a parameter of the address."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass

from yarl import URL

from dalsegno.errors import CredentialRefused
from dalsegno.ports.secrets import Credential, HostEntry, host_entry, is_connection_header


@dataclass(frozen=True, slots=True, repr=False)
class Authorisation:
    """``header`` and ``query`` are a name and a value; a credential gives one of them."""

    permits: Callable[[URL], bool]
    """Whether the credential's list of hosts has this address."""
    header: tuple[str, str] | None = None
    query: tuple[str, str] | None = None

    def in_address(self, url: URL) -> URL:
        """Where the server itself sent us to (a redirect, the next page) it seldom repeats the parameter."""
        return url.update_query({self.query[0]: self.query[1]}) if self.query else url

    def out_of_address(self, url: URL) -> URL:
        return url.without_query_params(self.query[0]) if self.query else url


def authorised_by(credential: Credential, url: URL, *, verified: bool = True) -> Authorisation:
    """Raises CredentialRefused before anything is sent, where the credential is not for this address. ``verified``:
    whether the certificate of the server is checked."""

    def permits(address: URL) -> bool:
        # The raw host is the one that the client connects to: lower case, punycode, digits in ASCII.
        host, port = address.raw_host or "", address.port
        return credential.permits_host(host, port, address.scheme, verified=verified)

    if not permits(url):
        raise CredentialRefused(_refusal(credential, url, verified=verified))
    header, query = _carried(credential)
    return Authorisation(permits, header, query)


Carried = tuple[tuple[str, str] | None, tuple[str, str] | None]


def _carried(credential: Credential) -> Carried:
    """The header or the query parameter that carries it."""
    match credential.type:
        case "bearer":
            return ("Authorization", f"Bearer {credential['token']}"), None
        case "basic":
            return ("Authorization", basic(credential["username"], credential["password"])), None
        case "header" if is_connection_header(credential.sent_as):
            raise CredentialRefused(
                f"credential '{credential.name}' is sent as the header '{credential.sent_as}', which belongs to the "
                "connection; set it again with another '--sent-as'"
            )
        case "header":
            return (credential.sent_as, credential["value"]), None
        case "query":
            return None, (credential.sent_as, credential["value"])
    raise CredentialRefused(
        f"credential '{credential.name}' is of type '{credential.type}', which does not say how a request carries it; "
        "use one of type 'bearer', 'basic', 'header' or 'query'"
    )


def _refusal(credential: Credential, url: URL, *, verified: bool) -> str:
    """Names the entry that would have to change where the host is listed and the scheme or port is not."""
    host = url.raw_host or ""
    known = next((entry for entry in credential.hosts if HostEntry.parse(entry).names(host)), None)
    if known is None:
        listed = ", ".join(credential.hosts) or "none"
        return (
            f"credential '{credential.name}' may not be sent to {host}; its hosts: {listed}. Nothing was sent"
        )
    unverified = (
        "" if verified or url.scheme == "http" else " without a check of its certificate (`ignore_ssl`)"
    )
    wanted = host_entry(host, url.port, url.scheme, verified=verified)
    return (
        f"credential '{credential.name}' may not be sent to {url.scheme}://{host}:{url.port}{unverified}: its host "
        f"'{known}' means https with a checked certificate, on port 443 unless the entry names another. If it is meant "
        f"to go there, replace the entry by '{wanted}' (`dalsegno credentials add {credential.name} --keep --host "
        f"{wanted} …`). Nothing was sent"
    )


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()
