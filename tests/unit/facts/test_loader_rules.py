"""The rules that the real loader cannot be made to show in a test; the others are in tests/functional/test_loader_rules.py."""

from __future__ import annotations

from typing import Any

import pytest

from cudnn_resolve.facts.elf import Elf
from cudnn_resolve.facts.loader_rules import Files, Loaded, Missing, Process, Rule, Surroundings, hardware_subdirectories

PROGRAM = Elf(arch="x86_64", bits=64)


def library(soname: str | None = None, *needed: str, **more: Any) -> Elf:
    return Elf(arch="x86_64", bits=64, soname=soname, needed=needed, **more)


def process(files: dict[str, Elf | str], **surroundings: Any) -> Process:
    return Process("/bin/python", PROGRAM, files_of(files), Surroundings(**surroundings))


def files_of(files: dict[str, Elf | str]) -> Files:
    def names(directory: str) -> frozenset[str]:
        inside = f"{directory.rstrip('/')}/"
        return frozenset(path.removeprefix(inside).partition("/")[0] for path in files if path.startswith(inside))

    return Files(look=files.get, names=names, identify=lambda path: path)


def opened(one: Loaded | Missing) -> tuple[str, Rule]:
    assert isinstance(one, Loaded), one
    return one.path, one.rule


def test_cache_comes_before_the_default_directories() -> None:
    files: dict[str, Elf | str] = {"/lib64/libz.so.1": library(), "/opt/z/libz.so.1": library()}

    assert opened(process(files, cache={"libz.so.1": "/opt/z/libz.so.1"}).open("libz.so.1")) == ("/opt/z/libz.so.1", Rule.CACHE)
    assert opened(process(files).open("libz.so.1")) == ("/lib64/libz.so.1", Rule.DEFAULT)


def test_a_cache_that_is_out_of_date_is_passed_over() -> None:
    files: dict[str, Elf | str] = {"/usr/lib64/libz.so.1": library()}

    assert opened(process(files, cache={"libz.so.1": "/gone/libz.so.1"}).open("libz.so.1")) == ("/usr/lib64/libz.so.1", Rule.DEFAULT)


def test_a_library_that_wants_no_default_directories() -> None:
    files: dict[str, Elf | str] = {"/a/liba.so": library("liba.so", "libz.so.1", no_default=True), "/lib64/libz.so.1": library()}
    around: dict[str, Any] = {"library_path": ("/a",), "cache": {"libz.so.1": "/lib64/libz.so.1"}}

    assert process(files, **around).open("liba.so") == Missing(name="libz.so.1", by="/a/liba.so", why="is not found")
    files["/elsewhere/libz.so.1"] = library()
    around["cache"] = {"libz.so.1": "/elsewhere/libz.so.1"}
    assert opened(process(files, **around).open("liba.so")) == ("/a/liba.so", Rule.LD_LIBRARY_PATH)


def test_a_symbol_version_that_is_not_there() -> None:
    files: dict[str, Elf | str] = {
        "/a/liba.so": library("liba.so", "libstdc++.so.6", wants=(("libstdc++.so.6", "GLIBCXX_3.4.30"),)),
        "/conda/libstdc++.so.6": library("libstdc++.so.6", defines=("libstdc++.so.6", "GLIBCXX_3.4.29")),
        "/lib64/libstdc++.so.6": library("libstdc++.so.6", defines=("libstdc++.so.6", "GLIBCXX_3.4.30")),
    }

    old = process(files, library_path=("/a", "/conda"))
    missing = old.open("liba.so")

    assert isinstance(missing, Missing)
    assert missing.why == "/conda/libstdc++.so.6 does not define version GLIBCXX_3.4.30"
    assert old.objects == (old.program,)
    assert opened(process(files, library_path=("/a",)).open("liba.so")) == ("/a/liba.so", Rule.LD_LIBRARY_PATH)


def test_a_library_without_versions_serves_whoever_wants_one() -> None:
    files: dict[str, Elf | str] = {
        "/a/liba.so": library("liba.so", "libz.so.1", wants=(("libz.so.1", "ZLIB_1.2"),)),
        "/a/libz.so.1": library("libz.so.1"),
    }

    assert opened(process(files, library_path=("/a",)).open("liba.so"))[0] == "/a/liba.so"


def test_find_leaves_the_process_as_it_is() -> None:
    files: dict[str, Elf | str] = {"/a/liba.so": library("liba.so", "libnowhere.so")}
    one = process(files, library_path=("/a",))

    assert opened(one.find("liba.so"))[0] == "/a/liba.so"
    assert one.objects == (one.program,)


def test_only_files_of_another_architecture() -> None:
    files: dict[str, Elf | str] = {"/a/liba.so": Elf(arch="aarch64", bits=64)}
    one = process(files, library_path=("/a",))

    assert one.open("liba.so") == Missing(name="liba.so", by="/bin/python", why="only files of another architecture are found")
    assert one.open("/a/liba.so") == Missing(name="/a/liba.so", by="/bin/python", why="is for aarch64, 64 bit")


def test_tokens() -> None:
    files: dict[str, Elf | str] = {
        "/a/liba.so": library("liba.so", "libb.so", runpath="/nowhere:$ORIGIN/$LIB/${PLATFORM}"),
        "/a/lib/x86_64-linux-gnu/haswell/libb.so": library("libb.so"),
    }
    one = process(files, library_path=("/a",), lib="lib/x86_64-linux-gnu", platform="haswell")

    assert opened(one.open("liba.so"))[0] == "/a/liba.so"
    assert opened(one.open("libb.so")) == ("/a/lib/x86_64-linux-gnu/haswell/libb.so", Rule.RUNPATH)


def test_the_best_subdirectory_for_the_processor_wins() -> None:
    files: dict[str, Elf | str] = {
        "/a/liba.so": library(),
        "/a/glibc-hwcaps/x86-64-v2/liba.so": library(),
        "/a/glibc-hwcaps/x86-64-v3/liba.so": library(),
    }
    levels = ("glibc-hwcaps/x86-64-v3", "glibc-hwcaps/x86-64-v2")

    assert opened(process(files, library_path=("/a",), subdirectories=levels).open("liba.so"))[0] == "/a/glibc-hwcaps/x86-64-v3/liba.so"
    assert opened(process(files, library_path=("/a",), subdirectories=levels[1:]).open("liba.so"))[0] == "/a/glibc-hwcaps/x86-64-v2/liba.so"


V2 = "fpu cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3"
V3 = f"{V2} avx avx2 bmi1 bmi2 f16c fma abm movbe"


@pytest.mark.parametrize(
    ("flags", "levels"),
    [
        ("fpu vme", []),
        (V2, ["v2"]),
        (V3, ["v3", "v2"]),
        (f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl", ["v4", "v3", "v2"]),
        ("avx avx2 bmi1 bmi2 f16c fma abm movbe", []),
    ],
)
def test_levels_of_processors(flags: str, levels: list[str]) -> None:
    cpuinfo = f"processor\t: 0\nflags\t\t: {flags}\nbugs\t\t:\n"

    assert hardware_subdirectories(cpuinfo) == tuple(f"glibc-hwcaps/x86-64-{level}" for level in levels)
    assert hardware_subdirectories("Features\t: fp asimd") == ()
