"""Bodies of replies about published values and streams."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, Field

from dalsegno.engine.operations.published import StreamChunk
from dalsegno.model.published import PublishedValue, StreamView
from dalsegno.server.schemas.values import moment, stored


class PublishedInfo(BaseModel):
    """A published value: the newest one of its key."""

    key: str = Field(examples=["stage"])
    value: Any = Field(examples=["packing"])
    version: int = Field(description="Grows with every change of the key.")
    at: datetime

    @classmethod
    def of(cls, row: PublishedValue) -> PublishedInfo:
        return cls(key=row.key, value=stored(row.data), version=row.version, at=moment(row.at))


class PublishedPage(BaseModel):
    values: list[PublishedInfo] = Field(
        description="By key. `progress` is the progress of the workflow itself."
    )


class StreamInfo(BaseModel):
    """A stream of an execution."""

    name: str = Field(examples=["answer"])
    length: int = Field(description="Its chunks so far: the offset of the next one.")
    bytes: int
    closed: bool

    @classmethod
    def of(cls, view: StreamView) -> StreamInfo:
        return cls(name=view.name, length=view.length, bytes=view.bytes, closed=view.closed)


class StreamList(BaseModel):
    streams: list[StreamInfo]


class ChunkInfo(BaseModel):
    """A chunk of a stream."""

    offset: int
    value: Any = Field(examples=["Once upon"])
    task: str = Field(default="", description="The task that wrote it; empty: the workflow itself.")
    attempt: int = 1
    restarts: bool = Field(
        default=False,
        description="Whether the task began anew with it: what its earlier attempts wrote no longer counts.",
    )
    at: datetime

    @classmethod
    def of(cls, chunk: StreamChunk) -> ChunkInfo:
        return cls(
            offset=chunk.offset,
            value=chunk.value,
            task=chunk.task,
            attempt=chunk.attempt,
            restarts=chunk.restarts,
            at=moment(chunk.at),
        )


class ChunkPage(BaseModel):
    chunks: list[ChunkInfo]
    next: int = Field(description="Pass it as `offset` to get the following chunks.")
    closed: bool = Field(description="Whether no further chunks follow `next`.")
