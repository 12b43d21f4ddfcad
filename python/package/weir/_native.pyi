"""The native part: see python/src."""

from os import PathLike
from typing import final

__all__ = [
    "ADMISSIONS",
    "COUNTED_AS",
    "POLICIES",
    "VERSION",
    "Batch",
    "BlockTrace",
    "Caches",
    "Reader",
    "Run",
    "Stop",
    "TraceError",
    "analyze",
    "formats",
    "generate",
]

POLICIES: list[str]
ADMISSIONS: list[str]
VERSION: str
COUNTED_AS: int

class TraceError(ValueError): ...

@final
class Stop:
    def __new__(cls) -> Stop: ...
    def set(self) -> None: ...

@final
class Batch:
    @property
    def rows(self) -> int: ...
    @property
    def time_ns(self) -> bytes: ...
    @property
    def disk(self) -> bytes: ...
    @property
    def op(self) -> bytes: ...
    @property
    def offset(self) -> bytes: ...
    @property
    def size(self) -> bytes: ...
    @property
    def response_ns(self) -> bytes: ...
    @property
    def has_response(self) -> bytes: ...
    @property
    def disks(self) -> list[str]: ...

@final
class Reader:
    def __new__(cls, path: str | PathLike[str], format: str | None, strict: bool) -> Reader: ...
    @property
    def format(self) -> str: ...
    @property
    def timed(self) -> bool: ...
    @property
    def responses(self) -> bool: ...
    def batch(self, rows: int) -> Batch | None: ...
    def notes(self) -> list[str]: ...

@final
class Caches:
    def __new__(
        cls, caches: list[tuple[str, str, str]], block_size: str, write_mode: str, dirty: str
    ) -> Caches: ...
    @property
    def sizes(self) -> list[str]: ...
    @property
    def block_bytes(self) -> int: ...
    @property
    def dirty(self) -> float | None: ...

@final
class BlockTrace:
    def __new__(
        cls, path: str | PathLike[str], format: str | None, strict: bool, caches: Caches, stop: Stop
    ) -> BlockTrace: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def blocks(self) -> int: ...
    @property
    def block_bytes(self) -> int: ...
    def run(self, caches: Caches) -> Run: ...

@final
class Run:
    @property
    def passes(self) -> int: ...
    def play(self, pass_: int, /) -> tuple[list[int], str]: ...

def analyze(
    path: str | PathLike[str],
    format: str | None,
    disk: str | None,
    strict: bool,
    policies: list[str],
    sample: str | None,
    blocks: int | None,
    stop: Stop,
) -> str: ...
def formats() -> list[tuple[str, str, bool, bool]]: ...
def generate(
    words: str,
    path: str | PathLike[str],
    seed: int,
    requests: int | None,
    duration: str | None,
    format: str,
    gzip: bool,
    stop: Stop,
) -> int: ...
