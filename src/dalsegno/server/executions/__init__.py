"""Definitions, starts and bulk requests as the routes use them."""
