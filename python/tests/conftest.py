"""Fixtures: synthetic traces, and the command line for comparison."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import pytest

import weir

matplotlib.use("Agg")

#: Reads, writes (some of them sequential) and trims: every kind of request that caches treat differently.
LOAD = "zipf reads=60% size=4KiB:3,20KiB:1 over=64MiB & scan size=256KiB over=64MiB rate=20 & scan reads=0% at=1GiB over=16MiB rate=50"


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "mixed.weirtrace"
    assert weir.generate(LOAD, path, seed=7, requests=20_000) == 20_000
    return path


@pytest.fixture(scope="session")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("several")
    paths = [folder / f"{seed}.weirtrace" for seed in range(3)]
    for seed, path in enumerate(paths):
        weir.generate("zipf reads=50% over=16MiB", path, seed=seed, requests=5_000)
    return paths


Command = Callable[..., Any]


@pytest.fixture(scope="session")
def command() -> Command:
    """Return what `weir ARGUMENTS --json` prints."""
    program = os.environ.get("WEIR")
    if not program:
        pytest.fail("these tests compare with the command line: name its program in WEIR, as python/test does")

    def run(*arguments: str | Path) -> Any:
        done = subprocess.run([program, *arguments, "--json"], capture_output=True, text=True, check=False)
        return json.loads(done.stdout)

    return run
