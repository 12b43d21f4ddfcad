import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster

import weir
from weir import _native, sweeps

POLICIES, SIZES = ["lru", "sieve", "arc"], ["1%", "10%", "256blk"]


def counts(results: weir.Results) -> list[dict[str, object]]:
    return [{**figures, "cpu_seconds": None} for figures in results]


def played(traces: list[Path], policies: list[str] = POLICIES, sizes: list[str] = SIZES) -> list[dict[str, object]]:
    return [figures for trace in traces for figures in counts(weir.simulate(trace, policies, sizes))]


def parts(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_a_sweep_is_all_simulations(tmp_path: Path, traces: list[Path]) -> None:
    results = weir.sweep(traces, POLICIES, SIZES, out=tmp_path, workers=2)
    assert counts(results) == played(traces)
    table = pq.read_table(tmp_path)
    assert table.num_rows == len(results) == len(set(table["key"].to_pylist()))
    assert sorted(map(str, weir.kept(tmp_path))) == sorted(map(str, results))


def test_what_is_done_is_not_done_again(tmp_path: Path, traces: list[Path]) -> None:
    weir.sweep(traces[:2], POLICIES[:2], SIZES[:2], out=tmp_path)
    before = parts(tmp_path)
    # The same trace under another name, and sizes in another notation.
    again = tmp_path.parent / "same.weirtrace"
    again.write_bytes(traces[0].read_bytes())
    same = weir.sweep([again, traces[1]], POLICIES[:2], ["1.0%", "10%"], out=tmp_path)
    assert parts(tmp_path) == before
    assert [figures["trace"] for figures in same[:1]] == [str(again)]
    # Only new results are computed: two traces' third size, three policies of the third trace, the third
    # policy.
    assert counts(weir.sweep(traces, POLICIES, SIZES, out=tmp_path)) == played(traces)
    after = parts(tmp_path)
    assert before.items() <= after.items() and len(after) == 4 + 4 + 2 + 3


def test_a_task_may_run_twice_or_break_off(tmp_path: Path, traces: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    write, written = pq.write_table, 0

    def failing(*arguments: object) -> None:
        nonlocal written
        written += 1
        write(*arguments)
        if written == 3:
            raise OSError("no space left on device")

    monkeypatch.setattr(pq, "write_table", failing)
    with pytest.raises(OSError, match="no space left"):
        weir.sweep(traces, POLICIES, SIZES, out=tmp_path, workers=1)
    # A file that could not be written completely does not exist.
    whole = len(parts(tmp_path))
    assert 2 <= whole < 9 and len(weir.kept(tmp_path)) == whole * len(SIZES)
    monkeypatch.undo()
    assert counts(weir.sweep(traces, POLICIES, SIZES, out=tmp_path)) == played(traces)

    before = parts(tmp_path)
    caches = sweeps.caches_of("lru", SIZES, "all", "4KiB", "through", "50%")
    keys = sweeps._keys(traces[0], None, False, caches)
    task = sweeps.Task(str(traces[0]), str(tmp_path), tuple(keys), caches)
    assert task.name in before
    (tmp_path / task.name).unlink()
    assert sweeps.run(task) == sweeps.run(task) == task.name
    assert counts(weir.sweep(traces, POLICIES, SIZES, out=tmp_path)) == played(traces)
    assert parts(tmp_path).keys() == before.keys()


def test_a_trace_that_changes_meanwhile_is_refused(tmp_path: Path, traces: list[Path]) -> None:
    trace, caches = tmp_path / "t", sweeps.caches_of("lru", "10%", "all", "4KiB", "through", "50%")
    trace.write_bytes(traces[0].read_bytes())
    task = sweeps.Task(str(trace), str(tmp_path), tuple(sweeps._keys(trace, None, False, caches)), caches)
    trace.write_bytes(traces[1].read_bytes())
    loaded = sweeps.Loaded(_native.Stop())
    for _ in range(2):
        with pytest.raises(weir.TraceError, match="is not what it was when the sweep began"):
            sweeps.run(task, loaded)


def test_errors_name_the_trace(tmp_path: Path, traces: list[Path]) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("no trace at all\n")
    with pytest.raises(weir.TraceError, match="bad.csv: no format is known"):
        weir.sweep([*traces, bad], out=tmp_path / "out")
    with pytest.raises(ValueError, match="name one of the two"):
        weir.sweep(traces, out=tmp_path / "out", workers=1, cluster="tcp://127.0.0.1:1")


def test_a_lost_worker_costs_nothing_but_time(tmp_path: Path) -> None:
    """One of two workers on a cluster is killed while it has a task and most tasks are pending."""
    traces = [tmp_path / f"{seed}.weirtrace" for seed in range(3)]
    for seed, trace in enumerate(traces):
        weir.generate("zipf reads=50% over=256MiB", trace, seed=seed, requests=200_000)
    sizes = [f"{percent}%" for percent in range(2, 30, 6)]
    local = weir.sweep(traces, weir.POLICIES, sizes, out=tmp_path / "local")
    total = len(parts(tmp_path / "local"))
    assert total == len(traces) * len(weir.POLICIES)

    out = tmp_path / "cluster"
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        Client(cluster) as client,
        Client(cluster) as other,
    ):
        at_kill: list[int] = []

        def kill() -> None:
            pids = client.run(os.getpid)
            while not list(out.glob("part-*.parquet")):
                time.sleep(0.01)
            busy = [worker for worker, tasks in client.processing().items() if tasks]
            at_kill.append(len(list(out.glob("part-*.parquet"))))
            os.kill(pids[busy[0]], signal.SIGKILL)

        with ThreadPoolExecutor(1) as pool:
            killing = pool.submit(kill)
            results = weir.sweep(traces, weir.POLICIES, sizes, out=out, cluster=other)
            killing.result()
        # The sweep was in progress, and the other worker or the replacement has run the tasks.
        assert 0 < at_kill[0] < total
        assert counts(results) == counts(local)
        assert {name for name in parts(out) if name.startswith("part-")} == set(parts(tmp_path / "local"))

        # A cluster given by its address: all results exist.
        before = parts(out)
        assert counts(weir.sweep(traces, weir.POLICIES, sizes, out=out, cluster=cluster.scheduler_address)) == counts(local)
        assert parts(out) == before
        with pytest.raises(weir.TraceError, match="no format is known"):
            (tmp_path / "bad.csv").write_text("no trace at all\n")
            weir.sweep(tmp_path / "bad.csv", out=out, cluster=other)
