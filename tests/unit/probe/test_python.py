from __future__ import annotations

import json
from typing import Any

import pytest

from cudnn_resolve.errors import CudnnResolveError, ExitCode, UsageError, WorldError
from cudnn_resolve.facts.model import Problem
from cudnn_resolve.host.child import MARK, answer_of
from cudnn_resolve.host.protocol import CommandResult
from cudnn_resolve.probe.python import TargetEnvironment, ask_python, choose_python, interpreters
from tests.fake_host import FakeHost

ANSWER: dict[str, Any] = {
    "version": "3.11.4",
    "executable": "/venv/bin/python",
    "implementation": "cpython",
    "prefix": "/venv",
    "base_prefix": "/usr",
    "externally_managed": False,
    "free_threaded": False,
    "machine": "x86_64",
    "system": "linux",
    "libc": "glibc 2.35",
    "ld_library_path": "/a::/b/",
    "path": ["/venv/lib/python3.11/site-packages"],
    "distributions": [["torch", "2.6.0", "/s", "/s/torch-2.6.0.dist-info", ["numpy"]]],
    "problems": [["x", "y"]],
}


def ask(result: CommandResult | dict[str, Any], path: str = "/venv/bin/python", second: CommandResult | None = None) -> TargetEnvironment:
    first = CommandResult(returncode=0, stdout=f"hello\n{MARK}{json.dumps(result)}\n") if isinstance(result, dict) else result
    replies = [first, second]
    return ask_python(FakeHost(programs=lambda _: replies.pop(0)), path, "--python")


def refusal(result: CommandResult | dict[str, Any], second: CommandResult | None = None) -> CudnnResolveError:
    with pytest.raises(CudnnResolveError) as raised:
        ask(result, second=second)
    assert raised.value.hint is not None
    assert raised.value.context == "/venv/bin/python"
    return raised.value


def test_what_the_interpreter_tells_becomes_the_target() -> None:
    target = ask(ANSWER)

    assert (target.python.version, target.python.path, target.prefix) == ("3.11.4", "/venv/bin/python", "/venv")
    assert (target.arch, target.glibc, target.ld_library_path) == ("x86_64", "2.35", ("/a", "/b/"))
    assert target.distributions[0].requires == ("numpy",)
    assert target.problems == (Problem(what="x", why="y"),)


@pytest.mark.parametrize(("told", "machine"), [("arm64", "aarch64"), ("AMD64", "x86_64"), ("ppc64le", "ppc64le"), ("", None)])
def test_architectures_have_the_names_of_wheels(told: str, machine: str | None) -> None:
    assert ask({**ANSWER, "machine": told}).arch == machine


def test_a_relative_path_becomes_the_one_that_the_interpreter_knows() -> None:
    assert ask(ANSWER, "./python").python.path == "/venv/bin/python"
    assert ask(ANSWER, "/shims/python").python.path == "/shims/python"


def test_another_c_library_is_a_problem() -> None:
    target = ask({**ANSWER, "libc": "", "problems": []})

    assert target.glibc is None
    assert [problem.what for problem in target.problems] == ["C library"]


def test_bytes_that_are_no_text_can_be_printed() -> None:
    target = ask({**ANSWER, "path": ["/a\udcffb"]})

    assert target.site_packages == ("/a?b",)


@pytest.mark.parametrize(
    ("result", "second", "error", "code", "words"),
    [
        (CommandResult(timed_out=True), None, WorldError, "python-hangs", "did not answer in time"),
        (CommandResult(signal="SIGSEGV"), None, WorldError, "python-crashes", "crashed (SIGSEGV)"),
        (CommandResult(missing=True, stderr="/x: Permission denied"), None, UsageError, "python-not-executable", "Permission denied"),
        (
            CommandResult(returncode=0, stdout="Hello\n"),
            CommandResult(returncode=0, stdout="Hello\n"),
            UsageError,
            "python-unusable",
            "not answer as Python",
        ),
        (
            CommandResult(returncode=1),
            CommandResult(returncode=0, stdout="python 2.7\n"),
            UsageError,
            "python-unusable",
            "it is Python 2.7; 3.6",
        ),
        (CommandResult(returncode=1), CommandResult(returncode=0, stdout="python 3.5\n"), UsageError, "python-unusable", "3.6 or later"),
        (
            CommandResult(returncode=1, stderr="Traceback\nModuleNotFoundError: No module named 'encodings'\n"),
            CommandResult(returncode=0, stdout="python 3.9\n"),
            WorldError,
            "python-broken",
            "No module named 'encodings'",
        ),
    ],
)
def test_what_is_no_usable_python_is_refused_with_its_reason(
    result: CommandResult, second: CommandResult | None, error: type[CudnnResolveError], code: str, words: str
) -> None:
    refused = refusal(result, second)

    assert isinstance(refused, error)
    assert refused.code == code
    assert words in str(refused)
    assert refused.exit_code == (ExitCode.WORLD if error is WorldError else ExitCode.USAGE)


@pytest.mark.parametrize(
    "change", [{"version": "x"}, {"problems": [["one"]]}, {"distributions": [["a"]]}, {"path": None}, {"version": "3.4.1"}]
)
def test_an_answer_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    assert refusal({**ANSWER, **change}).code == "python-unusable"


@pytest.mark.parametrize("line", ["", "{}", MARK + "{", MARK + "[]", MARK + "[" * 100_000])
def test_only_an_object_behind_the_mark_is_an_answer(line: str) -> None:
    assert answer_of(line) is None


def test_the_last_answer_counts_whatever_is_printed_around_it() -> None:
    assert answer_of(f'{MARK}{{"a": 1}}\n{MARK}{{"a": 2}}\nbye\n') == {"a": 2}


def choose(wanted: str | None, *files: str, python: str = "", **environ: str) -> tuple[str, str]:
    return choose_python(FakeHost(executables=files, environ={"PATH": "/usr/bin", **environ}, python=python), wanted)


@pytest.mark.parametrize(
    ("wanted", "path"),
    [
        ("/venv/bin/python", "/venv/bin/python"),
        ("/venv", "/venv/bin/python"),
        ("/venv/", "/venv/bin/python"),
        ("/venv/bin", "/venv/bin/python"),
        ("/old/bin", "/old/bin/python3"),
        ("python3.9", "/usr/bin/python3.9"),
        ("3.9", "/usr/bin/python3.9"),
        ("mine/bin/python", "mine/bin/python"),
        ("local", "./local"),
    ],
)
def test_every_way_to_name_an_interpreter(wanted: str, path: str) -> None:
    files = ("/venv/bin/python", "/old/bin/python3", "/usr/bin/python3.9", "mine/bin/python", "local")

    assert choose(wanted, *files) == (path, "--python")


@pytest.mark.parametrize("wanted", ["/nowhere", "python9", "3.99", "/etc"])
def test_a_missing_interpreter_is_the_users_mistake(wanted: str) -> None:
    with pytest.raises(UsageError) as raised:
        choose(wanted, "/etc/hosts")

    assert raised.value.code == "python-missing"
    assert wanted in str(raised.value)
    assert "--python" in (raised.value.hint or "")


def test_the_active_environment_comes_before_the_interpreter_that_runs_this() -> None:
    files = ("/venv/bin/python", "/conda/bin/python", "/tool/bin/python")

    assert choose(None, *files, python="/tool/bin/python", VIRTUAL_ENV="/venv", CONDA_PREFIX="/conda") == (
        "/venv/bin/python",
        "VIRTUAL_ENV",
    )
    assert choose(None, *files, python="/tool/bin/python", CONDA_PREFIX="/conda") == ("/conda/bin/python", "CONDA_PREFIX")
    assert choose(None, *files, python="/tool/bin/python") == ("/tool/bin/python", "runs this program")


def test_the_environment_of_the_folder_comes_before_condas_base_and_before_the_interpreter_that_runs_this() -> None:
    files = (".venv/bin/python", "/conda/bin/python", "/env/bin/python")

    assert choose(None, *files, python="/env/bin/python") == (".venv/bin/python", ".venv")
    assert choose(None, *files, CONDA_PREFIX="/conda", CONDA_DEFAULT_ENV="base") == (".venv/bin/python", ".venv")
    assert choose(None, *files, CONDA_PREFIX="/conda", CONDA_DEFAULT_ENV="work") == ("/conda/bin/python", "CONDA_PREFIX")
    assert choose(None, *files[1:], CONDA_PREFIX="/conda", CONDA_DEFAULT_ENV="base") == ("/conda/bin/python", "CONDA_PREFIX")


@pytest.mark.parametrize(
    ("prefix", "more"),
    [
        ("/home/u/.cache/uv/archive-v0/kJ2", ("/home/u/.cache/uv/CACHEDIR.TAG",)),
        ("/scratch/u/wheels/archive-v0/kJ2", ("/scratch/u/wheels/CACHEDIR.TAG",)),  # UV_CACHE_DIR
        ("/home/u/.local/share/uv/tools/cudnn-resolve", ()),
        ("/tools/x", ("/tools/x/uv-receipt.toml",)),
        ("/home/u/.local/share/pipx/venvs/cudnn-resolve", ()),
        ("/elsewhere", ("/elsewhere/pipx_metadata.json",)),
    ],
)
def test_the_environment_of_a_tool_is_never_the_target_silently(prefix: str, more: tuple[str, ...]) -> None:
    own = (f"{prefix}/bin/python", f"{prefix}/bin/python3", *more)
    path = f"{prefix}/bin:/usr/bin"

    found = choose(None, *own, "/usr/bin/python3", python=own[0], PATH=path, VIRTUAL_ENV=prefix)
    assert found == ("/usr/bin/python3", "first python3 on PATH")
    assert choose(prefix, *own, python=own[0])[1] == "--python"
    with pytest.raises(UsageError, match="an environment of its own") as raised:
        choose(None, *own, python=own[0], PATH=path)
    assert "--python .venv" in (raised.value.hint or "")


def test_without_an_interpreter_of_our_own_the_one_on_path_is_meant() -> None:
    assert choose(None, "/usr/bin/python3") == ("/usr/bin/python3", "first python3 on PATH")


def test_a_broken_active_environment_is_not_passed_over_silently() -> None:
    with pytest.raises(UsageError, match="VIRTUAL_ENV=/gone"):
        choose(None, "/tool/bin/python", python="/tool/bin/python", VIRTUAL_ENV="/gone")


def test_no_interpreter_at_all_is_said() -> None:
    with pytest.raises(UsageError, match="no Python interpreter was found"):
        choose(None)


def test_the_interpreters_that_are_there_by_their_minors() -> None:
    places = (
        *(
            "/home/u/.pyenv/shims/python3.12",
            "/home/u/.pyenv/versions/3.9.1/bin/python3.9",
            "/home/u/.pyenv/versions/3.11.7/bin/python3.11",
        ),
        *("/home/u/.pyenv/versions/3.11.12/bin/python3.11", "/usr/bin/python3.11", "/usr/bin/python3", "/usr/bin/python3.11-config"),
        *("/data/uv/python/cpython-3.13.1-linux-x86_64-gnu/bin/python3.13", "/opt/conda/envs/old/bin/python3.8"),
        "/home/u/.local/share/uv/tools/black/bin/python3.10",
    )
    path = "/home/u/.pyenv/shims:/home/u/.local/share/uv/tools/black/bin:relative"
    host = FakeHost(executables=places, environ={"HOME": "/home/u", "XDG_DATA_HOME": "/data", "PATH": path})

    assert interpreters(host) == {
        (3, 11): ["/home/u/.pyenv/versions/3.11.12/bin/python3.11", "/home/u/.pyenv/versions/3.11.7/bin/python3.11", "/usr/bin/python3.11"],
        (3, 9): ["/home/u/.pyenv/versions/3.9.1/bin/python3.9"],
        (3, 13): ["/data/uv/python/cpython-3.13.1-linux-x86_64-gnu/bin/python3.13"],
        (3, 8): ["/opt/conda/envs/old/bin/python3.8"],
    }
