"""Facts that contradict each other."""

from __future__ import annotations

import pytest

from cudnn_resolve.facts.contradiction import conflicts, covers, is_wrong
from cudnn_resolve.facts.model import CudnnCopy, Driver, Facts, InstalledFramework, LoadedCudnn, Problem, WouldLoad


def framework(built: str | None, loaded: str | None, path: str | None = "/x", cuda: str | None = None) -> InstalledFramework:
    load = WouldLoad(cudnn=LoadedCudnn(version=loaded, path=path))
    return InstalledFramework(name="torch", version="2", cuda_built=cuda, cudnn_built=built, would_load=load)


def test_nothing_known_contradicts_nothing() -> None:
    assert conflicts(Facts()) == ()
    assert conflicts(Facts(driver=None, gpus=(), cudnn=(), frameworks=())) == ()


@pytest.mark.parametrize(
    ("built", "loaded", "path", "wrong"),
    [
        ("9.1.0", "9.1.0", "/x", False),
        ("9.1.0", "9.10.2.21", "/x", False),
        ("9.10.0", "9.1.0.70", "/x", True),
        ("8.9.7", "9.1.0", "/x", True),
        ("9.1.0", "8.9.7", "/x", True),
        ("9.1.0", None, None, True),
        ("9.1.0", None, "/x", False),
        (None, "8.9.7", "/x", False),
        (None, None, None, False),
    ],
)
def test_the_cudnn_that_is_loaded_must_serve_the_build(built: str | None, loaded: str | None, path: str | None, wrong: object) -> None:
    row = framework(built, loaded, path)

    assert is_wrong(row) == wrong
    assert bool(conflicts(Facts(frameworks=(row,)))) == wrong


@pytest.mark.parametrize(
    ("built", "driver", "wrong"), [("12.4", "12.0", False), ("13.0", "12.9", True), (None, "12.0", False), ("13.0", None, False)]
)
def test_a_framework_of_a_newer_cuda_major_than_the_driver(built: str | None, driver: str | None, wrong: object) -> None:
    facts = Facts(driver=Driver(cuda=driver), frameworks=(framework(None, None, cuda=built),))

    assert bool(conflicts(facts)) == wrong


@pytest.mark.parametrize(("library", "module", "wrong"), [("550.1", "550.1", False), ("550.1", "535.1", True), ("550.1", None, False)])
def test_the_two_halves_of_the_driver(library: str, module: str | None, wrong: object) -> None:
    assert bool(conflicts(Facts(driver=Driver(version=library, kernel_module=module)))) == wrong


def test_a_broken_copy_says_what_is_wrong() -> None:
    broken = CudnnCopy(version="9.1.0", path="/a", problems=("p", "q"))
    mixed = CudnnCopy(soname=8, complete=False)
    fine = CudnnCopy(version="9.1.0", complete=True)

    found = conflicts(Facts(cudnn=(broken, mixed, fine)))

    assert [problem.what for problem in found] == ["cuDNN 9.1.0 in /a", "cuDNN 8"]
    assert found[0].why == "p; q"
    assert "missing" in found[1].why


def test_a_problem_covers_a_conflict_of_the_same_versions_and_paths() -> None:
    conflict = Problem(what="cuDNN 9.1.0 in /a/b", why="is broken")

    assert covers(Problem(what="x", why="found 9.1.0, see /a/b: it is broken"), conflict)
    assert not covers(Problem(what="x", why="found 9.1.0 somewhere"), conflict)
    assert not covers(Problem(what="x", why="y"), Problem(what="no", why="tokens"))
    assert covers(Problem(what="no", why="tokens"), Problem(what="no", why="tokens"))
