"""A server's workflows from Python: ``dalsegno.Client``, with the same handles as ``App``."""

from dalsegno.client.client import Client

__all__ = ["Client"]
