"""Sweeps: many traces, policies and sizes, on the cores of this machine or on a Dask cluster.

A sweep is divided into tasks: a trace, a policy, an admission policy, and all missing sizes. The result of a
task is one Parquet file in the sweep's folder, written atomically. A task may run twice, or be interrupted
anywhere, without changing the results: the name and the contents of its file depend only on the task.

A row has a cache's figures, its `key`, and the fields of the key (`Key`).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _native
from ._work import threads
from .caches import Caches, CacheFigures, Names, Results, caches_of, flat, listed, nested, play, schema, whole
from .traces import PathName, Trace, as_trace, warn

if TYPE_CHECKING:
    import pyarrow
    from distributed import Client

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Key:
    """Everything that determines a result: results with the same key are equal, except for the time they
    took."""

    #: The version of weir, and of its counting rules.
    weir: str
    trace_sha256: str
    format: str | None
    strict: bool
    block_bytes: int
    policy: str
    admission: str
    #: In canonical form.
    size: str
    write_mode: str
    dirty: float | None

    def digest(self) -> str:
        """Return a hash of the key."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class Task:
    """Caches for one trace that differ only in their size."""

    path: str
    folder: str
    keys: tuple[Key, ...]
    caches: Caches

    @property
    def name(self) -> str:
        """The name of its file, which depends only on the task."""
        digests = "\n".join(key.digest() for key in self.keys)
        return f"part-{hashlib.sha256(digests.encode()).hexdigest()[:32]}.parquet"


def sweep(
    traces: PathName | Trace | Iterable[PathName | Trace],
    policies: Names = "lru",
    sizes: Names = "10%",
    admissions: Names = "all",
    *,
    out: PathName,
    workers: int | None = None,
    cluster: Client | str | None = None,
    block_size: str = "4KiB",
    write_mode: str = "through",
    dirty: str = "50%",
    format: str | None = None,
    strict: bool = False,
) -> Results:
    """Play every trace to every cache, as `simulate` does, and store the results in the folder `out`, as
    Parquet.

    Results already in the folder are not computed again, even after an interruption. Traces are identified by
    their contents, so a sweep may be repeated, and extended by policies, sizes or traces. Returns the
    requested results.

    It runs on `workers` threads of this process (default: one per core), or on a Dask cluster: `cluster` is
    its client or its address. The workers need this package, and must see the traces and `out` under the same
    paths. If a worker is lost, another one runs its task.
    """
    if workers is not None and cluster is not None:
        raise ValueError("workers are threads of this process, and a cluster has its own; name one of the two")
    several = [traces] if isinstance(traces, str | os.PathLike | Trace) else list(traces)
    named = [as_trace(trace, format, strict) for trace in several]
    folder = Path(out).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    caches = caches_of(policies, sizes, admissions, block_size, write_mode, dirty)
    wanted = [_keys(path, format, strict, caches) for path, format, strict in named]
    have = _rows(folder)
    tasks = list(
        itertools.chain.from_iterable(
            _tasks(path, folder, keys, caches, have) for (path, _, _), keys in zip(named, wanted, strict=True)
        )
    )
    log.info("%d caches are asked for; %d tasks are to do, for %s", sum(map(len, wanted)), len(tasks), folder)
    if cluster is None:
        _here(tasks, workers)
    else:
        _on_cluster(tasks, cluster)
    have = _rows(folder)
    results = Results()
    for (path, _, _), keys in zip(named, wanted, strict=True):
        # The trace may have had another name when the result was computed.
        results += [{**nested(have[key.digest()]), "trace": str(path)} for key in keys]
    for figures in {figures["trace"]: figures for figures in results}.values():
        warn(figures["notes"])
    return results


def kept(out: PathName) -> Results:
    """Return all results that sweeps have stored in a folder."""
    return Results(nested(row) for row in _rows(Path(out)).values())


def run(task: Task, traces: Loaded | None = None) -> str:
    """Run a task, unless its result exists; return the name of its file."""
    done = Path(task.folder) / task.name
    if not done.exists():
        native = task.caches.native()
        trace = (traces or _WORKER).get(task, native)
        work = trace.run(native)
        figures = dict(itertools.chain.from_iterable(play(work, nth) for nth in range(work.passes)))
        rows = [whole(task.path, trace, key.size, figures[at]) for at, key in enumerate(task.keys)]
        _keep(done, task.keys, rows)
    return task.name


def _keys(path: Path, format: str | None, strict: bool, caches: Caches) -> list[Key]:
    native = caches.native()
    sha256 = _sha256(path)
    return [
        Key(
            weir=f"{_native.VERSION}+{_native.COUNTED_AS}",
            trace_sha256=sha256,
            format=format,
            strict=strict,
            block_bytes=native.block_bytes,
            policy=policy,
            admission=admission,
            size=size,
            write_mode=caches.write_mode,
            dirty=native.dirty,
        )
        for (policy, admission, _), size in zip(caches.caches, native.sizes, strict=True)
    ]


def _tasks(
    path: Path, folder: Path, keys: list[Key], caches: Caches, have: dict[str, Any]
) -> Iterator[Task]:
    """Return the tasks for the missing results of a trace, each key once."""
    missing = [key for key in dict.fromkeys(keys) if key.digest() not in have]
    by_policy: dict[tuple[str, str], list[Key]] = {}
    for key in missing:
        by_policy.setdefault((key.policy, key.admission), []).append(key)
    for (policy, admission), of in by_policy.items():
        named = [(policy, admission, key.size) for key in of]
        yield Task(str(path.absolute()), str(folder), tuple(of), caches._replace(caches=named))


def _here(tasks: list[Task], workers: int | None) -> None:
    with threads(workers) as (pool, stop):
        loaded = Loaded(stop)
        for _ in pool.map(lambda task: run(task, loaded), tasks):
            pass


def _on_cluster(tasks: list[Task], cluster: Client | str) -> None:
    from distributed import Client, as_completed

    client = Client(cluster) if isinstance(cluster, str) else cluster
    try:
        futures = [client.submit(run, task, key=f"weir-{task.name}", pure=False) for task in tasks]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            client.cancel(futures)
            raise
    finally:
        if client is not cluster:
            client.close()


class Loaded:
    """The trace last used by tasks of a process, in memory: it is read once, however many threads need it."""

    def __init__(self, stop: _native.Stop) -> None:
        self._stop = stop
        self._lock = threading.Lock()
        self._last: tuple[object, Future[_native.BlockTrace]] = (None, Future())

    def get(self, task: Task, caches: _native.Caches) -> _native.BlockTrace:
        """Return the trace of a task."""
        key = task.keys[0]
        wanted = (key.trace_sha256, key.format, key.strict, key.block_bytes)
        with self._lock:
            last, future = self._last
            is_new = last != wanted
            if is_new:
                future = Future()
                self._last = (wanted, future)
        if is_new:
            try:
                future.set_result(self._load(task, caches))
            except BaseException as error:
                future.set_exception(error)
                with self._lock:
                    self._last = (None, Future())
        return future.result()

    def _load(self, task: Task, caches: _native.Caches) -> _native.BlockTrace:
        key = task.keys[0]
        if _sha256(Path(task.path)) != key.trace_sha256:
            raise _native.TraceError(f"{task.path} is not what it was when the sweep began; start the sweep again")
        return _native.BlockTrace(task.path, key.format, key.strict, caches, self._stop)


#: The loaded trace of a cluster's worker.
_WORKER = Loaded(_native.Stop())


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _keep(path: Path, keys: Iterable[Key], rows: Iterable[CacheFigures]) -> None:
    """Write results to a file atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    of = [{**asdict(key), "key": key.digest(), **flat(row)} for key, row in zip(keys, rows, strict=True)]
    with tempfile.TemporaryDirectory(prefix=".", dir=path.parent) as folder:
        part = Path(folder) / path.name
        pq.write_table(pa.Table.from_pylist(of, _kept_schema()), part)
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        part.replace(path)


def _kept_schema() -> pyarrow.Schema:
    import pyarrow as pa

    columns = {
        "key": pa.string(),
        "weir": pa.string(),
        "trace_sha256": pa.string(),
        "format": pa.string(),
        "strict": pa.bool_(),
        "write_mode": pa.string(),
        "dirty": pa.float64(),
    }
    return pa.schema([*columns.items(), *zip(schema().names, schema().types, strict=True)])


def _rows(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the rows stored in a folder, by key."""
    import pyarrow.parquet as pq

    rows: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("part-*.parquet")):
        for row in pq.read_table(path).to_pylist():
            rows[row.pop("key")] = row
    return rows
