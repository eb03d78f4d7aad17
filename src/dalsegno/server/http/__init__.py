"""Requests and responses: guard, limits, deadlines, problem documents, OpenAPI."""
