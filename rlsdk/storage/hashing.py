"""Digests of large members, which another thread computes while the caller writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

BlockT = TypeVar("BlockT", bound=bytes | memoryview)
LARGE = 16 * 2**20
"""From this many bytes on, another thread computes the digest."""


class Digest(Protocol):
    """The members of an object of hashlib that are used."""

    def update(self, data: bytes | memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


def hashed(chunks: Iterable[BlockT], digest: Digest, size: int) -> Iterator[BlockT]:
    """Yield `chunks`, which have `size` bytes together, and add them to `digest`. It is complete after the last one.

    If they are large, another thread adds a chunk while the caller uses it and prepares the next one: hashlib, zlib and files
    do not hold Python's lock. At most two chunks wait for the thread.
    """
    if size < LARGE:
        for chunk in chunks:
            digest.update(chunk)
            yield chunk
        return
    with ThreadPoolExecutor(1, "digest") as thread:
        before = thread.submit(digest.update, b"")
        for chunk in chunks:
            added = thread.submit(digest.update, chunk)
            yield chunk
            before.result()
            before = added
        before.result()
