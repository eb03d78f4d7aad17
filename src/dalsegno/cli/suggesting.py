"""What a misspelt word was probably meant to be: in the command line's hands, from where everybody has it."""

from __future__ import annotations

from dalsegno.model.suggestion import did_you_mean, listed

__all__ = ["did_you_mean", "listed"]
