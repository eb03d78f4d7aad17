"""Commands about the workflows of a server: what a store gives them here, asked over HTTP."""
