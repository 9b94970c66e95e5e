from __future__ import annotations

from cudnn_resolve.facts.ldconfig import CacheEntry
from cudnn_resolve.facts.model import Problem
from cudnn_resolve.probe.system import find_apt, find_cache, relevant
from tests.fake_host import FakeHost
from tests.unit.facts.test_ldconfig import ARM, I686, X86, new_cache

STATUS = """Package: libcudnn8
Status: hold ok installed
Architecture: amd64
Version: 8.9.7.29-1+cuda12.2

Package: bash
Status: hold ok installed
Architecture: amd64
Version: 5.1
"""


def test_apt_packages_are_read_without_a_process() -> None:
    host = FakeHost({"/var/lib/dpkg/status": STATUS})

    versions, source, problems = find_apt(host, "x86_64")

    assert versions == {"libcudnn8": "8.9.7.29-1+cuda12.2", "bash": "5.1"}
    assert source == "/var/lib/dpkg/status"
    assert problems == (Problem(what="libcudnn8", why="is held at 8.9.7.29-1+cuda12.2 (apt-mark hold): apt does not change it"),)
    assert host.asked == []


def test_a_system_without_dpkg_has_no_apt_packages() -> None:
    versions, source, problems = find_apt(FakeHost({"/var/lib/rpm/rpmdb.sqlite": ""}), "x86_64")

    assert (dict(versions), source, problems) == ({}, "there is no /var/lib/dpkg/status", ())


def test_the_cache_is_that_of_one_architecture() -> None:
    cache = new_cache([(X86, "a.so", "/x/a.so"), (I686, "a.so", "/i/a.so"), (ARM, "a.so", "/a/a.so"), (0x7703, "a.so", "/u/a.so")])
    host = FakeHost({"/etc/ld.so.cache": cache})

    assert [entry.path for entry in find_cache(host, "x86_64")[0]] == ["/x/a.so", "/u/a.so"]
    assert len(find_cache(host, None)[0]) == 4


def test_a_broken_cache_is_a_problem_and_a_missing_one_is_none() -> None:
    entries, problems = find_cache(FakeHost({"/etc/ld.so.cache": b"garbage"}), "x86_64")

    assert entries == ()
    assert [problem.what for problem in problems] == ["/etc/ld.so.cache"]
    assert find_cache(FakeHost(), "x86_64") == ((), ())


def test_only_libraries_that_matter_are_facts() -> None:
    ours = ["libcudnn.so.9", "libcudnn_ops.so.9", "libcublas.so.12", "libcublasLt.so.12", "libcudart.so.12", "libcuda.so.1"]
    ours += ["libcufft.so.11", "libcurand.so.10", "libcusolver.so.11", "libcusparse.so.12", "libcupti.so.12", "libnvrtc.so.12"]
    ours += ["libnvJitLink.so.12", "libnvidia-ml.so.1", "libnccl.so.2", "libz.so.1"]
    others = ["libcurl.so.4", "libcups.so.2", "libnvme.so.1", "libzstd.so.1", "libcurses.so.6", "libicudata.so.72"]
    names = ours + others
    entries = tuple(CacheEntry(name=name, path=f"/l/{name}") for name in names)

    kept = [path.removeprefix("/l/") for path in relevant(entries)]

    assert kept == ours


def test_a_path_is_named_once() -> None:
    entries = (CacheEntry(name="libz.so.1", path="/l/z"), CacheEntry(name="libz.so", path="/l/z"))

    assert relevant(entries) == ("/l/z",)
