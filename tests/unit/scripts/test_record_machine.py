from __future__ import annotations

import base64
from typing import Any

import record_machine

from cudnn_resolve.facts.ldconfig import CacheEntry, parse_cache
from cudnn_resolve.facts.system import parse_status

STATUS = """Package: libcudnn8
Status: install ok installed
Maintainer: somebody
Architecture: amd64
Version: 8.9.7.29-1+cuda12.2
Description: long
 text

Package: private-tool
Status: install ok installed
Version: 1
"""
ENTRIES = [
    CacheEntry(name="libcudnn.so.9", path="/opt/cudnn/libcudnn.so.9", arch="x86_64"),
    CacheEntry(name="libprivate.so", path="/home/me/libprivate.so", arch="x86_64"),
    CacheEntry(name="libz.so.1", path="/lib/libz.so.1", arch="aarch64"),
    CacheEntry(name="libz.so.1", path="/lib32/libz.so.1", arch="i686"),
]


def test_only_packages_that_matter_are_kept_with_what_is_read_of_them() -> None:
    short = record_machine.shortened_status(STATUS)

    assert parse_status(short).versions == {"libcudnn8": "8.9.7.29-1+cuda12.2"}
    assert "somebody" not in short
    assert "private" not in short


def test_a_packed_cache_is_read_as_it_was_given() -> None:
    assert parse_cache(record_machine.packed_cache(ENTRIES)) == tuple(ENTRIES)


def test_only_libraries_that_matter_are_kept() -> None:
    short = record_machine.shortened_cache(record_machine.packed_cache(ENTRIES))

    assert parse_cache(short) == (ENTRIES[0], *ENTRIES[2:])


def test_a_recording_is_shortened_where_it_holds_lists() -> None:
    cache = base64.b64encode(record_machine.packed_cache(ENTRIES)).decode()
    answers: dict[str, Any] = {
        "texts": {"/var/lib/dpkg/status": STATUS, "/etc/os-release": "ID=x\nHOME_URL=y\n", "/none": None},
        "bytes": {"/etc/ld.so.cache:0:1": cache, "/lib/x:0:4": "AAAA", "/etc/ld.so.cache:0:2": None},
    }

    short = record_machine.shortened(answers)

    assert "private" not in short["texts"]["/var/lib/dpkg/status"]
    assert short["texts"]["/etc/os-release"] == "ID=x\n"
    assert b"private" not in base64.b64decode(short["bytes"]["/etc/ld.so.cache:0:1"])
    assert short["bytes"]["/lib/x:0:4"] == "AAAA"


def test_what_is_hidden_is_not_there() -> None:
    answers: dict[str, Any] = {
        "texts": {"/opt/own/a": "x", "/opt/owner": "y"},
        "bytes": {"/opt/own/a:0:4": "AAAA"},
        "directories": {"/opt": ["own", "owner"], "/opt/own": ["a"]},
        "stats": {"/opt/own": {}},
        "realpaths": {},
    }

    found = record_machine.without(answers, ["/opt/own"])

    assert found == {"texts": {"/opt/owner": "y"}, "bytes": {}, "directories": {"/opt": ["owner"]}, "stats": {}, "realpaths": {}}


def test_of_a_header_only_the_version_is_kept() -> None:
    text = "/* a licence */\n#define CUDART_VERSION  13000\nint f(void);\n"
    answers: dict[str, Any] = {"texts": {"/usr/local/cuda/include/cuda_runtime_api.h": text}, "bytes": {}}

    assert record_machine.shortened(answers)["texts"].popitem()[1] == "#define CUDART_VERSION  13000\n"


def test_of_the_kernels_files_only_what_is_read_is_kept() -> None:
    cpu = "processor\t: 0\nmodel name\t: X\nflags\t: avx2\n\nprocessor\t: 1\nflags\t: avx2\n"
    answers: dict[str, Any] = {"texts": {"/proc/cpuinfo": cpu, "/proc/self/status": "Pid:\t7\nUid:\t0\t0\t0\t0\n"}, "bytes": {}}

    short = record_machine.shortened(answers)

    assert short["texts"] == {"/proc/cpuinfo": "flags\t: avx2\n", "/proc/self/status": "Uid:\t0\t0\t0\t0\n"}


def test_what_tells_about_the_owner_is_replaced() -> None:
    one, two = "GPU-5a8d6e2c-1111-2222-3333-444455556666", "mig-5a8d6e2c-1111-2222-3333-444455557777"
    text = f'{{"{one}": "/home/me/x", "b": ["{two}", "{one.upper().replace("GPU-", "GPU-")}"]}}'

    found = record_machine.redacted(text, [("/home/me", "/home/user")])

    first, second = "GPU-00000000-0000-0000-0000-000000000000", "MIG-00000000-0000-0000-0000-000000000001"
    assert found == f'{{"{first}": "/home/user/x", "b": ["{second}", "{first}"]}}'
