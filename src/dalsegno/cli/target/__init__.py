"""The target of a command: a store that this process opens, or a server."""
