"""What the loader prints in trace mode; tests/functional/test_loader_rules.py asks the real one."""

from __future__ import annotations

import pytest

from cudnn_resolve.facts.loader_trace import Library, Missing, Rule, parse_trace

TOLD = """\
     77:\t
     77:\tfile=/opt/liba.so [0];  needed by /bin/python [0]
     77:\tfile=/opt/liba.so [0];  generating link map
     77:\t  dynamic: 0x00007f6e42ee6dd0  base: 0x00007f6e42ec9000   size: 0x000000000001e190
     77:\t
     77:\tfile=libb.so.1 [0];  needed by /opt/liba.so [0]
     77:\tfind library=libb.so.1 [0]; searching
     77:\t search path=/x/glibc-hwcaps/x86-64-v3:/x\t\t(LD_LIBRARY_PATH)
     77:\t  trying file=/x/glibc-hwcaps/x86-64-v3/libb.so.1
     77:\t search path=/opt\t\t(RUNPATH from file /opt/liba.so)
     77:\t  trying file=/opt/libb.so.1
     77:\tfile=libnope.so [0];  needed by /opt/liba.so [0]
     77:\tfind library=libnope.so [0]; searching
     77:\t search cache=/etc/ld.so.cache
     77:\t search path=/lib\t\t(system search path)
     77:\t  trying file=/lib/libnope.so
ERROR: ld.so: object 'libgone.so' from LD_PRELOAD cannot be preloaded (cannot open shared object file): ignored.
/bin/python: /opt/libb.so.1: version `B_2' not found (required by /opt/liba.so)
"""
LISTED = """\
\tlinux-vdso.so.1 (0x00007f6e42ef5000)
\t/opt/liba.so (0x00007f6e42ec9000)
\tlibb.so.1 => /opt/libb.so.1 (0x00007f6e42800000)
\tlibnope.so => not found
"""


def test_what_is_loaded_and_what_is_missing() -> None:
    trace = parse_trace(LISTED, TOLD)

    assert trace is not None
    assert trace.libraries == (
        Library(path="/opt/liba.so", by="/bin/python"),
        Library(path="/opt/libb.so.1", rule=Rule.RUNPATH, by="/opt/liba.so", where="/opt", holder="/opt/liba.so"),
    )
    assert trace.names == {"/opt/liba.so": "/opt/liba.so", "libb.so.1": "/opt/libb.so.1"}
    assert trace.missing == (
        Missing(name="libnope.so", by="/opt/liba.so", why="is not found", tried=("/lib/libnope.so",)),
        Missing(name="libb.so.1", by="/opt/liba.so", why="/opt/libb.so.1 does not define version B_2"),
    )
    assert trace.refused == {"libgone.so": Missing(name="libgone.so", by="", why="is not found")}
    assert trace.fatal is None


def test_who_needed_it_first_is_told_of_what_is_missing() -> None:
    again = "     77:\tfile=libnope.so [0];  needed by /opt/libb.so.1 [0]\n     77:\tfind library=libnope.so [0]; searching\n"
    trace = parse_trace(f"{LISTED}\tlibnope.so => not found\n", TOLD + again)

    assert trace is not None
    assert [(one.name, one.by) for one in trace.missing] == [("libnope.so", "/opt/liba.so"), ("libb.so.1", "/opt/liba.so")]


def test_directories_for_a_processor_are_those_above_them() -> None:
    told = TOLD.replace(" search path=/opt\t\t(RUNPATH from file /opt/liba.so)\n     77:\t  trying file=/opt/libb.so.1\n     77:\t", "")
    trace = parse_trace("\tlibb.so.1 => /x/glibc-hwcaps/x86-64-v3/libb.so.1 (0x00007f6e42800000)\n", told)

    assert trace is not None
    assert (trace.libraries[0].rule, trace.libraries[0].where) == (Rule.LD_LIBRARY_PATH, "/x")


def test_a_file_that_stops_the_loader() -> None:
    end = TOLD.partition("     77:\tfile=libnope.so")[0]
    trace = parse_trace("", f"{end}/bin/python: error while loading shared libraries: /opt/libb.so.1: invalid ELF header\n")

    assert trace is not None
    assert trace.fatal is not None
    assert (trace.fatal.name, trace.fatal.by, trace.fatal.why) == ("libb.so.1", "/opt/liba.so", "invalid ELF header")


@pytest.mark.parametrize(("listed", "told"), [("", ""), ("Python 3.11\n", "Traceback\n"), ("\t", "1:\t")])
def test_anything_else_is_no_trace(listed: str, told: str) -> None:
    assert parse_trace(listed, told) is None


def test_a_program_without_needs_lists_nothing_itself() -> None:
    told = TOLD.replace("     77:\tfile=libnope.so", "     77:\tfile=libb.so.1 [0];  generating link map\n     77:\tfile=libnope.so")
    trace = parse_trace("\tstatically linked\n", told)

    assert trace is not None
    assert trace.names == {"/opt/liba.so": "/opt/liba.so", "libb.so.1": "/opt/libb.so.1"}
    assert [one.rule for one in trace.libraries] == [Rule.PATH, Rule.RUNPATH]
    assert [one.name for one in trace.missing] == ["libnope.so", "libb.so.1"]
