"""A module whose classes a workflow gets to see without naming them all."""

from __future__ import annotations


class Book:
    def __init__(self, title: str) -> None:
        self.title = title


class Shelf:
    def __init__(self, title: str) -> None:
        self.books = [Book(title)]


def fill(title: str) -> Shelf:
    return Shelf(title)
