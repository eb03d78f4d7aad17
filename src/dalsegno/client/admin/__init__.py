"""Administration of a server: ``client.keys``, ``.limits``, ``.credentials``, ``.webhooks``, ``.alerts``,
``.dead_letters``, ``.definitions`` and ``.workers``."""
