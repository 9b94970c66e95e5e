"""Lines that install: what comes alone, and where packages come from."""

from __future__ import annotations

import pytest

from tests.unit.package_lists.test_list_forms import listed, versions


@pytest.mark.parametrize(
    ("lines", "alone"),
    [
        ("pip install --no-deps torch==2.6.0", {"torch": True}),
        ("pip install torch==2.6.0 && pip install --no-deps numpy==2.1.0", {"torch": False, "numpy": True}),
        ("pip install --no-dependencies torch==2.6.0 && pip install torch==2.6.0", {"torch": False}),
        ("pip install --no-deps torch==2.6.0 && pip install torch", {"torch": False}),
        ("pip install torch==2.6.0 && pip install --no-deps --force-reinstall torch==2.6.0", {"torch": False}),
        ("uv pip install --no-deps torch", {"torch": True}),
    ],
)
def test_what_comes_alone(lines: str, alone: dict[str, bool]) -> None:
    found = listed(f"FROM python:3.11-slim\nRUN {lines}\n")
    assert {one.name: one.alone for one in found.packages} | {one.name: one.alone for one in found.loose} == alone
    assert not found.gaps


def test_what_another_version_brought_stays() -> None:
    found = listed("FROM python:3.11\nRUN pip install torch==2.5.1\nRUN pip install --no-deps torch==2.6.0\n")
    assert found.gaps == ("torch 2.5.1 is replaced with --no-deps: what it required before is not judged",)


@pytest.mark.parametrize("option", ["-f {}", "-f{}", "--find-links={}", "--find-links {}", "--find-links '{}'", "-i {}"])
def test_an_index_in_a_requirements_file(option: str) -> None:
    address = "https://user:s3cr3t@index.example/torch_stable.html"
    found = listed(f"numpy==2.1.0\n{option.format(address)}\n")
    assert (versions(found), found.gaps) == ({"numpy": "2.1.0"}, ())
    assert found.notes == ("packages also come from https://index.example/torch_stable.html (judged by name and version only)",)
    found = listed(f"numpy==2.1.0 {option.format(address)}\n")
    assert (versions(found), found.gaps) == ({"numpy": "2.1.0"}, ())
    assert found.notes == ("pip ignores an index on the line of a requirement: https://index.example/torch_stable.html",)
