"""What people set up (keys, limits, credentials, webhooks, alerts): in a store that is opened here, or of a server."""
