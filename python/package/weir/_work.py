"""Runs native work on threads; Ctrl-C stops it."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from ._native import Stop


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def threads(count: int | None) -> Iterator[tuple[ThreadPoolExecutor, Stop]]:
    """Provide `count` threads (default: one per core), and a handle that stops native work on them.

    The main thread only waits, so that it can receive Ctrl-C. An exception that ends the block stops the
    work; the threads have ended when the block has.
    """
    if count is not None and count < 1:
        raise ValueError(f"{count} threads cannot work; name 1 or more")
    stop = Stop()
    with ThreadPoolExecutor(count or cores()) as pool:
        try:
            yield pool, stop
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
