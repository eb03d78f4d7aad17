"""Connections to PostgreSQL: opened, pooled and warmed up."""
