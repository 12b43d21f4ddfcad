import os
import signal
import threading
import time
from pathlib import Path

import pytest

import weir
from conftest import Command
from weir import _native, caches

SIZES = ["1%", "10%", "1MiB", "300blk"]


@pytest.mark.parametrize("mode", ["through", "around", "back"])
def test_figures_are_those_of_the_command_line(trace: Path, command: Command, mode: str) -> None:
    results = weir.simulate(
        trace, weir.POLICIES, SIZES, weir.ADMISSIONS, block_size="8KiB", write_mode=mode, dirty="30%"
    )
    dirty = ["--dirty", "30%"] if mode == "back" else []
    told = command(
        *["sim", "cache", trace, "--policy", ",".join(weir.POLICIES), "--size", ",".join(SIZES)],
        *["--admission", ",".join(weir.ADMISSIONS), "--block-size", "8KiB", "--write-mode", mode, *dirty],
    )["results"]
    assert len(told) == len(results) == len(weir.POLICIES) * len(weir.ADMISSIONS) * len(SIZES)
    for ours, theirs in zip(results, told, strict=True):
        figures = dict(ours)
        assert figures.pop("size") in SIZES
        assert figures.pop("notes") == theirs.get("notes", [])
        assert figures.pop("cpu_seconds") >= 0
        assert figures == {name: value for name, value in theirs.items() if name not in ("notes", "cpu_seconds")}


def test_a_frame_has_all_figures(trace: Path) -> None:
    results = weir.simulate(trace, ["lru", "arc"], SIZES)
    rows = results.rows()
    assert list(rows[0]) != [] and set(rows[0]) == set(caches.schema().names)
    assert results.to_arrow().to_pylist() == rows
    assert results.to_polars().to_dicts() == rows
    assert results.to_pandas()["reads_misses"].tolist() == [figures["reads"]["misses"] for figures in results]
    assert [caches.nested(row) for row in rows] == results


def test_threads_change_nothing_but_the_time(trace: Path) -> None:
    def counts(threads: int) -> list[int]:
        return [figures["misses"] for figures in weir.simulate(trace, weir.POLICIES, SIZES, threads=threads)]

    assert counts(1) == counts(4)


def test_what_makes_no_sense_is_refused(trace: Path) -> None:
    for arguments, words in [
        ({"policies": "lur"}, "there is no policy \"lur\"; there are fifo, lru"),
        ({"admissions": "none"}, "there is no admission policy \"none\""),
        ({"sizes": "10"}, "size \"10\": write a share"),
        ({"sizes": "1KiB"}, "size \"1KiB\" cannot be of blocks of 4 KiB"),
        ({"block_size": "3KiB"}, "block_size: write a power of two"),
        ({"write_mode": "behind"}, "there is no write mode \"behind\""),
        ({"dirty": "0%", "write_mode": "back"}, "dirty: write a percentage"),
        ({"threads": 0}, "0 threads cannot work"),
    ]:
        with pytest.raises(ValueError, match=words):
            weir.simulate(trace, **arguments)


def test_control_c_stops_a_long_run(tmp_path: Path) -> None:
    """A run of over a minute is interrupted after it has begun; its threads have ended when the exception
    arrives."""
    long = tmp_path / "long.weirtrace"
    weir.generate("zipf over=1GiB", long, requests=1_000_000)
    endless = tmp_path / "endless.weirtrace"
    sizes = [f"{percent}%" for percent in range(1, 60)]
    native = caches.caches_of(weir.POLICIES, sizes, "all", "4KiB", "through", "50%").native()

    def interrupt() -> None:
        while not any("ThreadPool" in thread.name for thread in threading.enumerate()):
            time.sleep(0.01)
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGINT)

    # A shell makes its background processes ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupter = threading.Thread(target=interrupt)
    interrupter.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            weir.simulate(long, weir.POLICIES, sizes)
        interrupter.join()
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            weir.generate("zipf over=1GiB", endless, requests=10**12)
    finally:
        interrupter.join()
        signal.signal(signal.SIGINT, before)
    assert threading.active_count() == 1
    assert list(tmp_path.iterdir()) == [long]

    # A stopped operation returns nothing rather than partial results.
    stop = _native.Stop()
    run = _native.BlockTrace(long, None, False, native, stop).run(native)
    stop.set()
    with pytest.raises(InterruptedError):
        run.play(0)
    with pytest.raises(InterruptedError):
        _native.BlockTrace(long, None, False, native, stop)
    with pytest.raises(InterruptedError):
        _native.analyze(long, None, None, False, [], None, None, stop)


def test_other_threads_go_on_meanwhile(tmp_path: Path) -> None:
    """The interpreter's lock is free during a simulation: this thread keeps counting."""
    path = tmp_path / "t.weirtrace"
    weir.generate("zipf over=256MiB", path, requests=300_000)
    native = caches.caches_of("lirs", "10%", "all", "4KiB", "through", "50%").native()
    run = _native.BlockTrace(path, None, False, native, _native.Stop()).run(native)
    playing, counted = threading.Event(), 0

    def play() -> None:
        playing.set()
        for _ in range(5):
            run.play(0)
        playing.clear()

    thread = threading.Thread(target=play)
    thread.start()
    playing.wait()
    while playing.is_set():
        counted += 1
        time.sleep(0)
    thread.join()
    # With the lock held there would be at most one turn per call.
    assert counted > 50


def test_a_size_that_is_a_number_is_told_how_to_be_written(trace: Path) -> None:
    for sizes, said in ((1000, "sizes has 1000"), (["10%", 0.5], "sizes has 0.5")):
        with pytest.raises(TypeError, match=f"{said}, which is no text; write it as text, such as 10%, 1GiB or 26921blk"):
            weir.simulate(trace, sizes=sizes)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="policies has None, which is no text; .* lru"):
        weir.simulate(trace, policies=None)  # type: ignore[arg-type]
