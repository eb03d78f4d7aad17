"""The tasks of the workloads as an application that ``dalsegno worker --app dalsegno.bench.tasks:app`` serves."""

from __future__ import annotations

from dalsegno.bench.workloads import application

app = application("memory:")
"""Its store is replaced by the worker's own."""
