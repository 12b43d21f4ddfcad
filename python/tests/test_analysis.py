from pathlib import Path

import pytest

import weir
from conftest import Command


@pytest.mark.parametrize("sample", [None, "20%", "500blk"])
def test_the_document_is_that_of_the_command_line(trace: Path, command: Command, sample: str | None) -> None:
    ours = weir.analyze(trace, ["lru", "sieve"], sample=sample)
    sampled = ["--sample", sample] if sample else []
    assert ours == command("trace", "analyze", trace, "--policy", "lru,sieve", *sampled)


def test_curves_are_what_caches_miss(trace: Path) -> None:
    """Curves are exact if all blocks are in the sample."""
    lru, arc = weir.mrc(trace, ["lru", "arc"], sample="100%")
    assert (lru.policy, arc.policy, arc.rate) == ("lru", "arc", 1.0)
    for curve in (lru, arc):
        sizes = [f"{blocks}blk" for blocks in curve.size_blocks]
        played = [figures["miss_ratio"] for figures in weir.simulate(trace, curve.policy, sizes)]
        assert curve.miss_ratio == pytest.approx(played, abs=1e-12)
        assert curve.error == [0.0] * len(sizes)


def test_of_many_blocks_some_are_looked_at(trace: Path, command: Command) -> None:
    with pytest.warns(weir.TraceWarning, match="too many blocks to look at each"):
        ours = weir.analyze(trace, "lru", blocks=1024)
    assert ours["sampled"]["blocks"] <= 1024
    assert ours == command("trace", "analyze", trace, "--policy", "lru", "--blocks", "1024")


def test_errors_have_the_words_of_the_command_line(trace: Path, command: Command) -> None:
    told = command("trace", "analyze", trace, "--disk", "sdz")["error"]
    with pytest.raises(weir.TraceError) as raised:
        weir.analyze(trace, disk="sdz")
    assert str(raised.value) == f"{told['message']}; {told['help']}"
    with pytest.raises(ValueError, match="there is no policy \"lur\""):
        weir.mrc(trace, "lur")
    with pytest.raises(ValueError, match="sample \"0%\": write a percentage"):
        weir.mrc(trace, sample="0%")
