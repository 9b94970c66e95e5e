"""LD_LIBRARY_PATH as the running kernel was started with it, against what it is now."""

from __future__ import annotations

import pytest

from cudnn_resolve.diagnosis.diagnose import diagnose_facts
from cudnn_resolve.facts.codec import from_mapping
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.probe.notebook import with_kernel_paths
from tests.fake_host import FakeHost
from tests.written_logs import book

WHEEL = "/v/nvidia/cudnn/lib"
LIBRARIES = {f"{WHEEL}/libcudnn.so.9": "x", "/opt/old/libcudnn.so.8": "x", "/opt/mine/libmine.so": "x"}


def machine(started: str | None, now: str, command: str = "python3\0-m\0ipykernel_launcher") -> FakeHost:
    environ = {} if started is None else {"/proc/700/environ": f"HOME=/root\0LD_LIBRARY_PATH={started}\0LANG=C\0"}
    processes = {"/proc/self/stat": "900 (x) S 700 1 1", "/proc/700/stat": "700 (python3) S 1 1 1", "/proc/700/cmdline": command}
    return FakeHost({**LIBRARIES, **processes, **environ}, environ={"LD_LIBRARY_PATH": now})


@pytest.mark.parametrize(
    ("started", "now", "found"),
    [
        ("", WHEEL, [("added", WHEEL)]),
        ("/opt/old", f"{WHEEL}/:/opt/old", [("added", WHEEL)]),
        ("/opt/old:/opt/mine", "", [("removed", "/opt/old")]),
        ("/opt/old", WHEEL, [("added", WHEEL), ("removed", "/opt/old")]),
        (WHEEL, f"{WHEEL}:", []),
        ("", "/opt/mine:relative:/none", []),
        (None, WHEEL, []),
    ],
)
def test_what_was_changed_since_the_kernel_started(started: str | None, now: str, found: list[tuple[str, str]]) -> None:
    problems = with_kernel_paths(machine(started, now), Facts()).problems
    assert [(one.what.removeprefix("loader.kernel."), one.why) for one in problems] == found


def test_other_parents_are_no_kernel() -> None:
    assert not with_kernel_paths(machine("", WHEEL, "/bin/bash\0-l"), Facts()).problems
    assert not with_kernel_paths(FakeHost(), Facts()).problems


def test_the_kernel_itself_may_ask() -> None:
    own = {"/proc/self/cmdline": "python3\0-m\0ipykernel_launcher", "/proc/self/environ": "LANG=C\0"}
    assert with_kernel_paths(FakeHost({**LIBRARIES, **own}, environ={"LD_LIBRARY_PATH": WHEEL}), Facts()).problems


def test_it_is_a_finding_with_what_to_do_in_the_notebook() -> None:
    facts = from_mapping({"cudnn": [{"version": "9.1.0", "soname": 9, "path": WHEEL, "source": "pip"}]}, "test")
    added = diagnose_facts(with_kernel_paths(machine("", WHEEL), facts), book())
    assert [(one.cause, one.severity) for one in added] == [("lib_not_on_path", "warning")]
    assert f"ctypes.CDLL('{WHEEL}/libcudnn.so.9'" in added[0].remedy[0].text
    removed = diagnose_facts(with_kernel_paths(machine("/opt/old", ""), Facts()), book())
    assert [(one.cause, one.severity) for one in removed] == [("ld_path_shadowing", "warning")]
    assert "/opt/old was removed" in removed[0].summary
