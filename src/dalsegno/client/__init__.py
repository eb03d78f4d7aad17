"""The Python client of a server: ``dalsegno.Client``, with the same handles as ``App``."""

from dalsegno.client.client import Client

__all__ = ["Client"]
