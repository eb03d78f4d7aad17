"""Administration of a store: API keys, webhooks and alerts. Shared by the server and the command line."""
