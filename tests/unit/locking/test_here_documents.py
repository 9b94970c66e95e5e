"""Files that a Dockerfile writes itself, by the here-documents of COPY."""

from __future__ import annotations

from cudnn_resolve.facts.model import Facts, Platform, Python
from cudnn_resolve.locking.foreign import read_list
from cudnn_resolve.locking.listing import PackageList
from cudnn_resolve.requirement.machine import machine_of
from tests.program import shipped


def listed(text: str) -> PackageList:
    facts = Facts(platform=Platform(system="linux", arch="x86_64"), python=Python(version="3.11.4"))
    return read_list(text, "Dockerfile", machine_of(facts, shipped()))


def test_a_file_that_a_dockerfile_writes_is_read_at_its_own_lines() -> None:
    found = listed(
        "FROM python:3.11-slim-bookworm\n"
        "COPY <<'END' /pins.txt\n"
        "torch==2.6.0 --hash=sha256:00\n"
        "END\n"
        "COPY <<'END' /more.txt\n"
        "numpy==1.26.4\n"
        "END\n"
        "RUN python3 -m pip install --no-deps -r /pins.txt -r /more.txt\n"
    )
    assert {one.name: (one.version, one.line) for one in found.packages} == {"torch": ("2.6.0", 3), "numpy": ("1.26.4", 6)}
    assert not found.gaps


def test_a_dockerfile_that_reads_its_own_text_without_end() -> None:
    text = "FROM python:3.11\n" + "\n" * 50_000 + "COPY <<END /a\ntorch==2.6.0\nEND\n" + "RUN pip install -r /a\n" * 500
    assert any("too much is read from here-documents" in gap for gap in listed(text).gaps)
