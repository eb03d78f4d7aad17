"""Durations in documents: the language's own (lang/durations.py)."""

from __future__ import annotations

from dalsegno.lang.durations import MAX_SECONDS, BadDuration, parse_duration

__all__ = ["MAX_SECONDS", "BadDuration", "parse_duration"]
