"""The engine's side of the wire: messages of other programs come in, statuses and completions go out."""
