"""Files of an image: those that a Dockerfile writes itself, by the here-documents of COPY, and those that it copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudnn_resolve.errors import InputError
from cudnn_resolve.facts.model import Facts, Platform, Python
from cudnn_resolve.package_lists.model import PackageList
from cudnn_resolve.package_lists.read_list import read_list
from cudnn_resolve.requirement.file import Reader
from cudnn_resolve.requirement.machine import machine_of
from tests.program import shipped


def listed(text: str, open_: Reader | None = None) -> PackageList:
    facts = Facts(platform=Platform(system="linux", arch="x86_64"), python=Python(version="3.11.4"))
    return read_list(text, "Dockerfile", machine_of(facts, shipped()), open_=open_)


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


@pytest.mark.slow
def test_a_dockerfile_that_reads_its_own_text_without_end() -> None:
    text = "FROM python:3.11\n" + "\n" * 50_000 + "COPY <<END /a\ntorch==2.6.0\nEND\n" + "RUN pip install -r /a\n" * 500
    assert any("the here-documents are too long" in gap for gap in listed(text).gaps)


def test_files_of_an_image_lie_where_they_were_copied_from(tmp_path: Path) -> None:
    text = """
ARG BASE=ubuntu
FROM --platform=$TARGETPLATFORM ${TARGETARCH}-base
FROM ubuntu:22.04
COPY requirements/gpu.txt /tmp/wanted.txt
WORKDIR /app
COPY --chown=me . .
RUN --mount=type=bind,source=more.txt,target=/bound.txt pip install -r /bound.txt
RUN pip install -r /tmp/wanted.txt -r requirements/dev.txt && uv pip install -r pyproject.toml
"""
    (tmp_path / "docker").mkdir()
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements/gpu.txt").write_text("torch==2.6.0\n", encoding="utf-8")
    (tmp_path / "requirements/dev.txt").write_text("keras==3.8.0\n", encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["cupy-cuda12x==13.4.0"]\n', encoding="utf-8")
    (tmp_path / "more.txt").write_text("numpy==2.2.6\n", encoding="utf-8")

    def open_(name: str, base: str | None) -> tuple[str, str]:
        path = (tmp_path / "docker" if base == "Dockerfile" else Path(base or "").parent) / name
        if not path.is_file():
            raise InputError("there is no such file", code="unreadable")
        return str(path), path.read_text(encoding="utf-8")

    found = listed(text, open_=open_)
    assert {one.name: one.version for one in found.packages} == {
        "torch": "2.6.0",
        "keras": "3.8.0",
        "numpy": "2.2.6",
        "cupy-cuda12x": "13.4.0",
    }
    assert not found.gaps
