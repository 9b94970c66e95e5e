"""detect as text: one screen, conflicts marked, nothing that a terminal would act on."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudnn_resolve.facts.codec import decode
from cudnn_resolve.facts.model import CudnnCopy, Driver, Facts, Gpu, InstalledFramework, LoadedCudnn, Platform, Problem, WouldLoad
from cudnn_resolve.report.detect import show_facts
from cudnn_resolve.report.text import Style, clean, table, wrap
from tests.pages import text_of

MACHINES = Path(__file__).parents[2] / "machines"


def machine(name: str) -> Facts:
    return decode((MACHINES / f"{name}.json").read_text("utf-8"))


def marked(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("!")]


def test_a_sound_machine_in_whole() -> None:
    assert text_of(show_facts, machine("notebook")) == (
        "  System      Ubuntu 22.04, x86_64, glibc 2.35, Google Colab, root\n"
        "              made up in the manner of a hosted notebook: two cuDNN majors side by side\n"
        "  Python      CPython 3.10.12, /usr/bin/python3\n"
        "              66 pip packages, 5 apt packages\n"
        "  Driver      535.104.05, supports CUDA up to 12.2\n"
        "  GPU         Tesla T4, compute capability 7.5, 15.0 GiB\n"
        "  CUDA        12.2  apt  /usr/local/cuda-12.2\n"
        "  cuDNN       8.9.6.50  CUDA 12  apt  /usr/lib/x86_64-linux-gnu\n"
        "              9.6.0.74  CUDA 12  pip  /usr/local/lib/python3.10/dist-packages/nvidia/cudnn/lib\n"
        "  Frameworks  tensorflow 2.17.1  built with CUDA 12.3  cuDNN 8.9.6\n"
        "                loads 8.9.6.50 /usr/lib/x86_64-linux-gnu/libcudnn.so.8 (the linker cache)\n"
        "              torch 2.5.1+cu121  built with CUDA 12.1  cuDNN 9.1.0\n"
        "                loads 9.6.0.74\n"
        "                /usr/local/lib/python3.10/dist-packages/nvidia/cudnn/lib/libcudnn.so.9 (RPATH of\n"
        "                libtorch_cuda.so)\n"
        "  Loader      LD_LIBRARY_PATH=/usr/lib64-nvidia\n"
        "              1 CUDA library in the linker cache\n"
        "  Problems    none\n"
    )


def test_what_is_unknown_is_not_called_absent() -> None:
    unknown = text_of(show_facts, Facts())
    absent = text_of(show_facts, Facts(driver=None, gpus=(), cuda_toolkits=(), cudnn=(), frameworks=()))

    assert "Driver      unknown" in unknown
    assert "cuDNN       unknown" in unknown
    assert "Driver      none" in absent
    assert "GPU         none" in absent
    assert "CUDA        no toolkit" in absent
    assert "cuDNN       none" in absent
    assert "Frameworks  none" in absent


def test_conflicts_are_marked_and_explained() -> None:
    text = text_of(show_facts, machine("workstation"))

    assert text.count("\n") <= 40
    lines = marked(text)
    for word in ("535.183.01", "hidden", "incomplete", "tensorflow 2.15.1  built", "torch 2.9.1        built"):
        assert any(word in line for line in lines), word
    for word in ("built with cuDNN 8.9.4, would load 8.6.0.163", "would find none", "the driver supports CUDA up to 12.4", "cnn_infer"):
        assert any(word in line for line in lines[5:]), word


def test_problems_that_are_no_conflicts_are_told_without_a_mark() -> None:
    text = text_of(show_facts, Facts(problems=(Problem(what="nvidia-smi", why="did not answer"),)))

    assert "  Problems    nvidia-smi: did not answer\n" in text
    assert not marked(text)


def test_a_conflict_that_the_probe_reported_is_told_once() -> None:
    probed = Problem(what="driver/library version mismatch", why="library 550.54.15, module 535.183.01: reboot")
    facts = Facts(driver=Driver(version="550.54.15", kernel_module="535.183.01"), problems=(probed, Problem(what="x", why="550.54.15")))

    text = text_of(show_facts, facts)

    assert marked(text)[1:] == ["! Problems    driver/library version mismatch: library 550.54.15, module 535.183.01: reboot"]
    assert text.count("535.183.01") == 2
    assert "              x: 550.54.15\n" in text


def test_equal_gpus_are_counted() -> None:
    text = text_of(show_facts, Facts(gpus=(Gpu(name="H100", memory_mib=81920),) * 8))

    assert "  GPU         8 x H100, 80.0 GiB\n" in text


def test_long_lists_are_cut_but_never_the_wrong_rows() -> None:
    good = CudnnCopy(version="9.1.0", path="/good")
    bad = CudnnCopy(version="9.2.0", path="/bad", complete=False)
    facts = Facts(cudnn=(*[good] * 30, bad))

    text = text_of(show_facts, facts)

    assert "/bad" in text
    assert "and 25 more (-v shows them)" in text
    assert text_of(show_facts, facts, verbose=True).count("/good") == 30


@pytest.mark.slow
def test_a_hopeless_machine_still_fits_a_screen() -> None:
    bad = CudnnCopy(version="9.2.0", path="/" + "b" * 300, complete=False, problems=("x" * 500,))
    load = WouldLoad(cudnn=LoadedCudnn(version="8.0.0", path="/" + "p" * 300), because="q" * 300)
    framework = InstalledFramework(name="torch", version="2" * 100, cudnn_built="9.1.0", would_load=load)
    facts = Facts(cudnn=(bad,) * 200, frameworks=(framework,) * 50, problems=(Problem(what="w", why="y " * 4000),) * 300)

    lines = text_of(show_facts, facts).splitlines()

    assert len(lines) < 90
    assert [line for line in lines if len(line) > 100 and max(map(len, line.split())) < 80] == []


def test_verbose_says_how_each_fact_was_learnt() -> None:
    text = text_of(show_facts, machine("notebook"), verbose=True)

    assert "  Sources     driver.version: libnvidia-ml.so.1\n" in text


def test_hostile_names_reach_no_terminal() -> None:
    evil = "\x1b]0;pwned\x07\u202e\n\r\x9b2J"
    facts = Facts(
        platform=Platform(distribution=evil, release=evil),
        gpus=(Gpu(name=evil),),
        cudnn=(CudnnCopy(path=evil, problems=(evil,)),),
        frameworks=(
            InstalledFramework(name=evil, version=evil, variant=evil, would_load=WouldLoad(cudnn=LoadedCudnn(path=evil), because=evil)),
        ),
        problems=(Problem(what=evil, why=evil),),
        sources={evil: evil},
        container=evil,
        note=evil,
    )

    text = text_of(show_facts, facts, verbose=True)

    assert not [char for char in text if char != "\n" and not char.isprintable()]
    assert "\\x1b]0;pwned\\x07\\u202e\\n\\r\\x9b2J" in text


def test_colours_change_no_word() -> None:
    import re

    facts = machine("workstation")
    colored = text_of(show_facts, facts, style=Style(True))

    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == text_of(show_facts, facts)


def test_a_driver_without_version() -> None:
    assert "  Driver      of unknown version\n" in text_of(show_facts, Facts(driver=Driver()))


def test_clean_keeps_newlines_only_where_they_are_meant() -> None:
    assert clean("a\nb\tc\x00") == "a\\nb\\tc\\x00"
    assert clean("a\nb\x1b", lines=True) == "a\nb\\x1b"
    assert clean("Größe 中文 🐍") == "Größe 中文 🐍"


def test_table_drops_empty_columns_and_cuts_nothing() -> None:
    assert table([]) == []
    assert table([("a", "", "b"), ("ccc", "", "d")]) == ["  a    b", "  ccc  d"]
    assert table([("a", "x" * 500)]) == [f"  a  {'x' * 500}"]


def test_wrap_indents_what_follows() -> None:
    assert wrap("aaa bbb ccc", width=8, first="- ") == ["- aaa", "  bbb", "  ccc"]
    assert wrap("", width=8, first="- ") == ["-"]
