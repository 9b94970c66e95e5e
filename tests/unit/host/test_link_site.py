"""Where the system's loader finds a library by name, and in which order."""

from __future__ import annotations

from cudnn_resolve.host.link_site import SystemLibraries
from tests.elf_writer import write_elf
from tests.fake_host import FakeHost
from tests.unit.facts.test_ldconfig import X86, new_cache

NAME = "liba.so.1"


def found(*, rpath: str | None = None, runpath: str | None = None) -> tuple[str, ...]:
    """Paths of a library that lies everywhere, for an interpreter with that search path."""
    folders = ("/own", "/said", "/cached", "/usr/lib")
    files: dict[str, str | bytes] = {f"{folder}/{NAME}": write_elf(NAME) for folder in folders}
    files |= {"/usr/bin/python3": write_elf(rpath=rpath, runpath=runpath), "/etc/ld.so.cache": new_cache([(X86, NAME, f"/cached/{NAME}")])}
    host = FakeHost(files, environ={"LD_LIBRARY_PATH": "/said"})
    return tuple(path.rpartition("/")[0] for path in SystemLibraries(host, "/usr/bin/python3").find(NAME))


def test_the_order_is_that_of_the_loader() -> None:
    assert found() == ("/said", "/cached", "/usr/lib")
    assert found(runpath="/own") == ("/said", "/own", "/cached", "/usr/lib")
    assert found(rpath="/own") == ("/own", "/said", "/cached", "/usr/lib")


def test_both_spellings_of_the_interpreters_own_directory_are_replaced() -> None:
    assert found(runpath="$ORIGIN/../../own")[1] == "/own"
    assert found(runpath="${ORIGIN}/../../own")[1] == "/own"
