"""The ``http`` node: requests, responses, pagination and the egress policy."""
