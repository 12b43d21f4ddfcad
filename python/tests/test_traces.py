import gzip
import os
from pathlib import Path

import polars
import pyarrow as pa
import pytest

import weir
from conftest import Command

LINES = "time_us,disk,op,offset,size\n1,sda,R,0,4096\n2,sdb,W,4096,512\n5,sda,T,8192,4096\n4,sda,W,9223372036854767616,4608\n"
FORMAT = "csv:time_us,disk,op,offset,size"
ROWS = [
    {"time_ns": 1000, "disk": "sda", "op": "read", "offset": 0, "size": 4096},
    {"time_ns": 2000, "disk": "sdb", "op": "write", "offset": 4096, "size": 512},
    {"time_ns": 5000, "disk": "sda", "op": "trim", "offset": 8192, "size": 4096},
    {"time_ns": 4000, "disk": "sda", "op": "write", "offset": 9223372036854767616, "size": 4608},
]


def lines(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text)
    return path


def test_rows_are_the_requests(tmp_path: Path) -> None:
    trace = weir.read_trace(lines(tmp_path, LINES), FORMAT)
    assert (trace.format, trace.timed, trace.notes()) == (FORMAT, True, [])
    assert trace.to_arrow().to_pylist() == ROWS
    assert trace.to_polars().to_dicts() == ROWS
    assert trace.to_pandas().to_dict("records") == ROWS
    assert polars.DataFrame(trace).to_dicts() == pa.table(trace).to_pylist() == ROWS


@pytest.mark.parametrize("rows", [1, 3, 4, 100])
def test_batches_are_the_rows_a_few_at_a_time(tmp_path: Path, rows: int) -> None:
    trace = weir.read_trace(lines(tmp_path, LINES), FORMAT)
    for _ in range(2):
        batches = list(trace.batches(rows))
        assert [row for batch in batches for row in batch.to_pylist()] == ROWS
        assert [batch.num_rows for batch in batches] == ([rows] * (4 // rows) + [4 % rows] * (4 % rows > 0))


def test_packed_traces_are_unpacked(tmp_path: Path) -> None:
    packed = tmp_path / "trace.csv.gz"
    packed.write_bytes(gzip.compress(LINES.encode()))
    assert weir.read_trace(packed, FORMAT).to_arrow().to_pylist() == ROWS


def test_no_time_is_null(tmp_path: Path) -> None:
    trace = weir.read_trace(lines(tmp_path, "0,4096\n4096,8192\n"), "csv:offset,size")
    assert not trace.timed
    assert trace.to_polars()["time_ns"].to_list() == [None, None]


def test_a_frame_that_is_written_is_a_trace(tmp_path: Path, trace: Path) -> None:
    frame = weir.read_trace(trace).to_polars()
    frame.write_csv(tmp_path / "again.csv")
    again = weir.read_trace(tmp_path / "again.csv", f"csv:{','.join(frame.columns)}")
    assert again.to_polars().equals(frame)


def test_bad_lines_are_left_out_and_reported(tmp_path: Path) -> None:
    trace = weir.read_trace(lines(tmp_path, LINES + "7,sda,Q,0,4096\n"), FORMAT)
    with pytest.warns(weir.TraceWarning, match="1 lines were left out; the first: .*line 6, column 7"):
        assert trace.to_arrow().num_rows == 4
    assert len(trace.notes()) == 1
    strict = weir.read_trace(trace.path, FORMAT, strict=True)
    for use in (strict.to_arrow, strict.to_polars, lambda: weir.simulate(strict), lambda: weir.analyze(strict)):
        with pytest.raises(weir.TraceError, match="line 6, column 7.*correct the line"):
            use()


def test_errors_have_the_words_of_the_command_line(tmp_path: Path, command: Command) -> None:
    path = lines(tmp_path, "no trace at all\n")
    told = command("trace", "analyze", path)["error"]
    for use in (weir.read_trace, weir.analyze, weir.simulate):
        with pytest.raises(weir.TraceError) as raised:
            use(path)
        # The command line also names its option.
        assert str(raised.value).startswith(f"{told['message']}; ")
        assert str(raised.value).partition("one of ")[2] == told["help"].partition("one of ")[2] != ""
    with pytest.raises(FileNotFoundError, match="missing.csv"):
        weir.read_trace(tmp_path / "missing.csv")
    with pytest.raises(ValueError, match="no format is called \"nonesuch\"; there are weir, msr"):
        weir.read_trace(path, "nonesuch")


def test_a_folder_is_no_trace(tmp_path: Path) -> None:
    for use in (weir.read_trace, weir.simulate, weir.analyze):
        with pytest.raises(IsADirectoryError, match=f"{tmp_path} is a folder; name a trace in it"):
            use(tmp_path)


def test_made_up_traces_are_those_of_the_command_line(tmp_path: Path, command: Command) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for kind in weir.formats():
        if kind.writable:
            count = weir.generate("oltp", ours, seed=3, duration="2s", format=kind.name)
            told = command("trace", "generate", "oltp", "--out", theirs, "--seed", "3", "--duration", "2s", "--format", kind.name, "--force")
            assert ours.read_bytes() == theirs.read_bytes(), kind.name
            assert count == told["requests"]
    packed, theirs_packed = tmp_path / "ours.csv.gz", tmp_path / "theirs.csv.gz"
    assert weir.generate("oltp", packed, seed=3, duration="2s", format="msr") > 0
    command("trace", "generate", "oltp", "--out", theirs_packed, "--seed", "3", "--duration", "2s", "--format", "msr")
    assert gzip.decompress(packed.read_bytes()) == gzip.decompress(theirs_packed.read_bytes())
    assert packed.read_bytes()[:2] == b"\x1f\x8b"
    assert weir.read_trace(packed).to_arrow().equals(weir.read_trace(theirs_packed).to_arrow())
    packed.unlink()
    theirs_packed.unlink()
    with pytest.raises(ValueError, match="packed twice: .* leave .gz off"):
        weir.generate("oltp", tmp_path / "ours.gz")
    with pytest.raises(ValueError, match="a load has no \"speed\""):
        weir.generate("zipf speed=1", tmp_path / "none")
    with pytest.raises(ValueError, match="traces are not written as hpl"):
        weir.generate("zipf", tmp_path / "none", format="hpl")
    # The format cannot represent any of the requested requests.
    assert weir.generate("uniform at=512B", ours, requests=10, format="oracle") == 0
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for no_file in (pipe, tmp_path):
        with pytest.raises(ValueError, match="no ordinary file"):
            weir.generate("zipf", no_file, requests=10)
    assert pipe.is_fifo()
    assert {path.name for path in tmp_path.iterdir()} == {"ours", "theirs", "pipe"}


def test_formats_are_those_of_the_command_line(command: Command) -> None:
    assert [kind._asdict() for kind in weir.formats()] == command("trace", "formats")["formats"]


MSR = "128166372003061629,src1,0,Read,7014609920,24576,41286\n128166372016382155,src1,1,Write,2657792,512,0\n"


def test_response_times_are_a_column_where_there_are_any(tmp_path: Path) -> None:
    trace = weir.read_trace(lines(tmp_path, MSR))
    assert (trace.format, trace.responses, trace.notes()) == ("msr", True, [])
    assert trace.to_arrow()["response_ns"].to_pylist() == [4_128_600, None]
    assert trace.to_polars()["response_ns"].to_list() == [4_128_600, None]
    assert trace.to_pandas()["response_ns"].isna().tolist() == [False, True]
    without = weir.read_trace(lines(tmp_path, LINES), FORMAT)
    assert not without.responses
    assert "response_ns" not in without.schema.names
    described = weir.read_trace(lines(tmp_path, "7,0,4096,1.5\n"), "csv:time_us,offset,size,response_ms")
    assert described.to_arrow()["response_ns"].to_pylist() == [1_500_000]


def test_a_format_in_doubt_is_reported(tmp_path: Path) -> None:
    text = "".join(f"{nth * 7}.250 0 {nth * nth * 7919 % 100000 * 8} 8 {nth % 2}\n" for nth in range(60))
    path = lines(tmp_path, text)
    trace = weir.read_trace(path)
    assert trace.format == "disksim"
    assert any("the format is ambiguous: took disksim" in note for note in trace.notes())
    for use in (trace.to_arrow, lambda: weir.analyze(trace), lambda: weir.analyze(path)):
        with pytest.warns(weir.TraceWarning, match="the format is ambiguous: took disksim"):
            use()
    assert weir.read_trace(path, "disksim").notes() == []
    with pytest.warns(weir.TraceWarning, match="no multiple of 512 bytes, the first of 8 bytes"):
        weir.read_trace(path, "ms-bytes").to_arrow()
