"""Reading logs: any size, any ends of lines, in bounded memory."""

from __future__ import annotations

import html
import itertools
import textwrap
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cudnn_resolve.diagnosis.log_lines import Index, Line, Scanner, joined, plain
from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.diagnosis.normalize_log import unwrapped
from tests.examples import examples
from tests.written_logs import book, judged, loud

MISSING = "ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory"


def numbers(log: bytes, *, piece: int = 1 << 16) -> list[int]:
    found = Reader(book().symptoms()).read(log[start : start + piece] for start in range(0, len(log), piece))
    return [one.line for one in found.matches.get("loader-cudnn-not-found", [])]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("before", [0, 1, 500, 40_000])
def test_a_line_has_its_number(before: int, end: str) -> None:
    log = f"step 1 of many{end}" * before + MISSING + end
    assert numbers(log.encode()) == [before + 1]


def test_lines_that_a_progress_bar_draws_over_count_as_one() -> None:
    bar = "".join(f"\r {number}%|###| {number}/100" for number in range(100))
    assert numbers(f"start\n{bar}\n{MISSING}\n".encode()) == [3]
    assert numbers(f"start\n{bar}\r{MISSING}\n".encode()) == [2]


def test_another_major_in_a_line_of_one_shape_is_seen() -> None:
    log = "\n".join(f"OSError: libcudnn.so.{major}: cannot open shared object file" for major in (7, 8, 9))
    assert numbers(log.encode()) == [1, 2, 3]


@settings(max_examples=examples(40))
@given(st.binary(max_size=300), st.integers(1, 50))
def test_how_a_log_is_cut_into_pieces_changes_nothing(raw: bytes, piece: int) -> None:
    log = raw + b"\n" + MISSING.encode() + b"\n" + raw
    assert judged(log, piece=piece) == judged(log)


def test_a_line_without_an_end_is_looked_at_in_bounded_memory() -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(16):
            yield b"x" * (1 << 18)
        yield f" {MISSING} ".encode()
        for _ in range(8):
            yield b"y" * (1 << 18)

    symptoms = book().symptoms()
    tracemalloc.start()
    found = Reader(symptoms).read(endless())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.matches["loader-cudnn-not-found"][0].line == 1
    assert peak < 20 << 20


@pytest.mark.slow
def test_memory_does_not_grow_with_the_log() -> None:
    def many() -> Iterator[bytes]:
        for number in range(12):
            yield "".join(f"shape {number} {other} word{number * other}x libcudnn\n" * 3 for other in range(600)).encode()

    symptoms = book().symptoms()
    tracemalloc.start()
    Reader(symptoms).read(many())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20


def test_a_message_over_lines_is_joined_without_the_prefix_of_its_rank() -> None:
    log = b"[rank1]: first half\n[rank0]: another\n[rank1]: second half\n"
    lines = list(Scanner(Index(["first half"])).feed(log)) + list(_finish(log))
    assert lines[0].head + joined(lines[0], 2) == "[rank1]: first half second half"


def _finish(log: bytes) -> Iterator[Line]:
    scanner = Scanner(Index(["first half"]))
    list(scanner.feed(log))
    yield from scanner.finish()


def test_text_is_cleaned() -> None:
    assert plain("\x1b[1;31mcouldn\u2018t\x1b[0m \u201cx\u201d\x07".encode()) == 'couldn\'t "x"'
    assert plain(b"\xff\xfebad") == "\ufffd\ufffdbad"


def test_a_line_before_a_message_is_no_part_of_it() -> None:
    """Two lines are one only where the message goes over the break between them, as a terminal wraps it."""
    from tests.written_logs import judged

    before = "python -m pip install --upgrade torch torchvision\n"
    message = "ImportError: libcublas.so.11: cannot open shared object file: No such file or directory\n"
    assert [one.line for one in judged(before + message).findings[0].evidence] == [2]
    wrapped = before + message[:50] + "\n" + message[50:]
    assert [one.line for one in judged(wrapped).findings[0].evidence] == [2]


WARNING = "WARNING:jax._src.xla_bridge:An NVIDIA GPU may be present here, but a CUDA-enabled jaxlib is not installed. Falling back to cpu."


@pytest.mark.parametrize("width", [72, 80, 100])
def test_a_wrapped_message_is_one_line_still(width: int) -> None:
    assert not loud(judged(WARNING + "\n"))
    soft = "\n".join(textwrap.wrap(WARNING, width))
    hard = "\n".join(WARNING[at : at + width] for at in range(0, len(WARNING), width))
    assert not loud(judged(soft + "\n"))
    assert not loud(judged(hard + "\n"))


def test_entities_take_nothing_of_the_width() -> None:
    message = (
        'start "a" error: nvidia-container-cli: requirement error: unsatisfied condition: cuda >= 9.0 "of" <the> "image" & of what is in it'
    )
    assert len(message) > 80
    lines = [message[at : at + 80] for at in range(0, len(message), 80)]
    assert loud(judged("\n".join(lines) + "\n")) == loud(judged(html.escape("\n".join(lines)) + "\n")) == ["driver_too_old"]


def test_the_backslashes_of_markdown_are_not_part_of_a_name() -> None:
    log = "ImportError: libcudnn_ops_infer.so.8: cannot open shared object file: No such file or directory\n"

    assert loud(judged(log)) == loud(judged(log.replace("_", r"\_").replace(".", r"\."))) == ["cudnn_missing"]
    assert unwrapped(r"C:\v\_x\torch\_C.pyd") == r"C:\v\_x\torch\_C.pyd"


def test_what_a_container_runtime_writes_before_a_line_is_no_part_of_it() -> None:
    log = 'a\n  File "x.pyx", line 8, in y\nmine.TheirError: std::bad_cast\n'
    stamped = "".join(f"2026-01-05T10:20:30.123456789Z stderr F {line}\n" for line in log.splitlines())
    assert loud(judged(stamped)) == loud(judged(log)) == ["unrecognised"]


def test_a_field_keeps_its_kind_beside_another_pattern_of_the_row() -> None:
    lines = ("Options: -arch=compute_86 a.cu", "CUDA Capability: 8.6", "compute capability: 8.6")
    row = next(symptom for symptom in book().symptoms() if symptom.id == "context-gpu-capability")
    for at, order in enumerate(itertools.permutations((*lines, *lines), 4)):
        uncompiled = replace(row, id=str(at))
        log = "".join(f"{line}\n" for line in order)
        assert Reader((uncompiled,)).read([log.encode()]).counts == {str(at): len(order)}
