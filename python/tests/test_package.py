import gzip
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import weir

PACKAGE = Path(__file__).parent.parent


def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(PACKAGE / "tutorial.py"))
    assert list(tmp_path.glob("*.png"))


def test_the_readme_is_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("trace.csv", "a.csv", "b.csv"):
        weir.generate("zipf over=64MiB", tmp_path / name, requests=5_000, format="msr")
    packed = gzip.compress((tmp_path / "trace.csv").read_bytes())
    (tmp_path / "trace.csv.gz").write_bytes(packed)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (PACKAGE / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)


def test_types_are_right() -> None:
    """mypy accepts the package and the tutorial."""
    mypy(PACKAGE, "mypy")


def test_the_native_part_is_what_its_stub_says(tmp_path: Path) -> None:
    """mypy's stubtest accepts the installed package."""
    mypy(tmp_path, "mypy.stubtest", "weir._native", "--mypy-config-file", str(PACKAGE / "pyproject.toml"))


def mypy(folder: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_else_is_needed_to_begin_with(tmp_path: Path, trace: Path) -> None:
    """Simulation and analysis work without the optional packages."""
    names = ["pyarrow", "polars", "pandas", "matplotlib", "numpy", "distributed", "dask"]
    script = f"""
import sys
for name in {names}:
    sys.modules[name] = None
import weir
weir.analyze({str(trace)!r})
assert weir.simulate({str(trace)!r}, ["lru", "arc"], ["1%", "10%"])[0]["misses"]
"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)
