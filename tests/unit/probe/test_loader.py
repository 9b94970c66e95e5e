"""What becomes of a loader that cannot be asked."""

from __future__ import annotations

import pytest

from cudnn_resolve.facts.model import Problem
from cudnn_resolve.host.protocol import CommandResult
from cudnn_resolve.probe.loader import CannotAskError, DynamicLoader
from tests.elf_writer import write_elf
from tests.fake_host import FakeHost
from tests.library_tree import LOADER, SITE, Files, distribution, environment_of, look

FILES: Files = {
    "/venv/bin/python": write_elf(interpreter=LOADER),
    f"{SITE}/mxnet/libmxnet.so": write_elf("libmxnet.so", ("libcudnn.so.8",)),
}
MXNET = distribution("mxnet-cu112", "1.9.1")


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (CommandResult(timed_out=True), "did not answer in time"),
        (CommandResult(signal="SIGSEGV"), "crashed (SIGSEGV)"),
        (CommandResult(missing=True, stderr="env is not there"), "env is not there"),
        (CommandResult(returncode=0, stdout="usage\n"), "does not say what it would load"),
    ],
)
def test_a_loader_without_an_answer_leaves_it_unknown_and_says_so(result: CommandResult, words: str) -> None:
    framework, problems = look(FakeHost(FILES, programs=lambda _argv: result), MXNET)

    assert framework.would_load is None
    assert problems == (Problem(what="mxnet-cu112 1.9.1", why=f"the cuDNN it would load is unknown: {LOADER} {result.why() or words}"),)
    assert words in problems[0].why


def test_a_path_that_ld_preload_cannot_hold() -> None:
    environment = environment_of()
    host = FakeHost(FILES)
    process = DynamicLoader(host, environment).process()

    with pytest.raises(CannotAskError, match="paths with a space or a colon, such as /a b/liba"):
        process.open_all(("/a b/liba.so", "/c d/libb.so"))
    assert host.asked == []


def test_an_interpreter_of_musl_is_not_asked() -> None:
    files = {**FILES, "/venv/bin/python": write_elf(interpreter="/lib/ld-musl-x86_64.so.1")}

    framework, problems = look(FakeHost(files), MXNET)

    assert framework.would_load is None
    assert "no program of glibc" in problems[0].why
