from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from cudnn_resolve.facts.system import debian_arch, parse_status

STATUS = """Package: libcudnn8
Status: hold ok installed
Architecture: amd64
Version: 8.9.7.29-1+cuda12.2
Description: cuDNN runtime
 Package: not a field
 .
 more

Package: libcudnn9-cuda-12
Status: deinstall ok config-files
Architecture: amd64
Version: 9.1.0.70-1

Package: libc6
Status: install ok installed
Architecture: i386
Version: 2.34-0

Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.35-0ubuntu3

Package: libc6
Status: install ok installed
Architecture: i386
Version: 2.34-0

Package: zlib1g
Status: install ok installed
Architecture: i386
Version: 1.2

Package: half
Status: install ok half-configured
Version: 1

Package: tzdata
Status: install ok installed
Architecture: all
Version: 2024a
"""


def test_what_is_installed_counts_and_nothing_else() -> None:
    found = parse_status(STATUS, "amd64")

    assert found.versions == {"libcudnn8": "8.9.7.29-1+cuda12.2", "libc6": "2.35-0ubuntu3", "zlib1g": "1.2", "tzdata": "2024a"}


def test_a_hold_is_seen() -> None:
    assert parse_status(STATUS, "amd64").held == {"libcudnn8"}


def test_without_a_native_architecture_the_last_one_counts() -> None:
    assert parse_status(STATUS).versions["libc6"] == "2.34-0"


def test_architectures_have_the_names_of_dpkg() -> None:
    assert (debian_arch("x86_64"), debian_arch("aarch64"), debian_arch("mips"), debian_arch(None)) == ("amd64", "arm64", None, None)


@given(some.text(alphabet="Package: Status\ninstall ok installed Version1.~+", max_size=300))
def test_no_text_breaks_it(text: str) -> None:
    assert all(name and version for name, version in parse_status(text).versions.items())
