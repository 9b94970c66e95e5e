"""Wheels whose files another wheel wrote over."""

from __future__ import annotations

import base64
import hashlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

from cudnn_resolve.diagnosis.diagnose import diagnose_facts
from cudnn_resolve.facts.codec import from_mapping
from cudnn_resolve.host.installed_files import verify_files, with_overwritten
from cudnn_resolve.host.linux import LinuxHost
from tests.fake_host import FakeHost
from tests.written_logs import book

SITE = "/v/lib/python3.11/site-packages"
FACTS = from_mapping(
    {
        "python": {"version": "3.11.9", "prefix": "/v", "path": "/v/bin/python"},
        "packages": {"pip": {"nvidia-cudnn-cu12": "9.1.0.70", "nvidia-cudnn-cu13": "9.19.0.56"}},
    },
    "test",
)
NAMES = ("nvidia-cudnn-cu12", "nvidia-cudnn-cu13")


def host(size: int, *, records: str = "nvidia/cudnn/lib/libcudnn.so.9,sha256=x,{size}\n") -> FakeHost:
    return FakeHost(
        {
            f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9": b"x" * size,
            f"{SITE}/nvidia_cudnn_cu12-9.1.0.70.dist-info/RECORD": records.format(size=100),
            f"{SITE}/nvidia_cudnn_cu13-9.19.0.56.dist-info/RECORD": records.format(size=200),
        }
    )


def test_the_one_that_was_unpacked_last_is_named() -> None:
    for size, lost, won in ((200, NAMES[0], NAMES[1]), (100, NAMES[1], NAMES[0])):
        facts = with_overwritten(host(size), FACTS, NAMES)
        assert [one.what for one in facts.problems] == [f"packages.pip.{lost}"]
        finding = next(one for one in diagnose_facts(facts, book()) if one.cause == "cudnn_sublibrary_mix")
        assert finding.severity == "error"
        assert f"overwritten by {won}" in finding.summary
        assert finding.remedy[0].command == f"cudnn-resolve apply --reinstall-package {lost}"
        assert f"uninstall -y {won} {lost}" in str(finding.remedy[1].command)


def test_of_two_builds_of_one_size_the_sum_tells() -> None:
    def row(content: bytes) -> str:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        return f"nvidia/cudnn/lib/libcudnn.so.9,sha256={digest},{len(content)}\n"

    ours, theirs = b"a" * 5000, b"b" * 5000
    for there, lost in ((ours, [NAMES[1]]), (theirs, [NAMES[0]]), (b"c" * 5000, [*NAMES])):
        machine = FakeHost(
            {
                f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9": there,
                f"{SITE}/nvidia_cudnn_cu12-9.1.0.70.dist-info/RECORD": row(ours),
                f"{SITE}/nvidia_cudnn_cu13-9.19.0.56.dist-info/RECORD": row(theirs),
            }
        )
        problems = with_overwritten(machine, FACTS, NAMES).problems
        assert [one.what.removeprefix("packages.pip.") for one in problems] == lost
        assert all(("overwritten by" in one.why) is (len(lost) == 1) for one in problems)


def test_files_as_they_were_installed_are_no_problem() -> None:
    assert not with_overwritten(host(100), FACTS, ["nvidia-cudnn-cu12"]).problems


def test_a_record_may_be_anything() -> None:
    for records in ('a,b\n"', "x" * 3000, "../../etc/passwd,sha256=x,{size}\n", "a,b,99999999999999999999\n"):
        assert not with_overwritten(host(1, records=records), FACTS, NAMES).problems
    assert not with_overwritten(FakeHost({}), FACTS, NAMES).problems


def test_files_that_went_with_another_wheel_are_missed() -> None:
    rows = "nvidia/cudnn/lib/libcudnn.so.9,sha256=x,100\nnvidia/cudnn/lib/libcudnn_ops.so.9,sha256=y,50\nnvidia/cudnn/notes.py,sha256=z,9\n"
    there: dict[str, str | bytes] = {
        f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9": b"x" * 100,
        f"{SITE}/nvidia_cudnn_cu12-9.1.0.70.dist-info/RECORD": rows,
    }
    finding = next(one for one in diagnose_facts(with_overwritten(FakeHost(there), FACTS, NAMES[:1]), book()) if one.severity == "error")
    assert finding.cause == "cudnn_missing"
    assert "1 of 3 files that nvidia-cudnn-cu12 9.1.0.70 installed are not there" in finding.summary
    assert [one.command for one in finding.remedy] == [
        "cudnn-resolve apply --reinstall-package nvidia-cudnn-cu12",
        "/v/bin/python -m pip install --force-reinstall --no-deps nvidia-cudnn-cu12==9.1.0.70",
    ]


def test_an_empty_list_of_files_is_itself_missed() -> None:
    problems = with_overwritten(host(100, records=""), FACTS, NAMES).problems
    assert [one.why for one in problems] == [
        f"removed: 1 of 1 files that {name} installed are empty, such as {folder}.dist-info/RECORD"
        for name, folder in (
            ("nvidia-cudnn-cu12 9.1.0.70", "nvidia_cudnn_cu12-9.1.0.70"),
            ("nvidia-cudnn-cu13 9.19.0.56", "nvidia_cudnn_cu13-9.19.0.56"),
        )
    ]


def lay_down(site: Path, name: str, files: Mapping[str, str]) -> None:
    """A package as an installer leaves it."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    rows = []
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text)}")
    (info / "RECORD").write_text("\n".join([*rows, f"{info.name}/RECORD,,"]))


def test_each_kind_of_damage_has_its_owner(tmp_path: Path) -> None:
    lay_down(tmp_path, "one", {f"one/{part}.py": f"{part}\n" for part in ("gone", "empty", "changed", "later", "whole")})
    lay_down(tmp_path, "two", {"two/a.py": "a\n", "one/extra/two.py": "b\n"})
    (tmp_path / "one/gone.py").unlink()
    (tmp_path / "one/empty.py").write_text("")
    (tmp_path / "one/changed.py").write_text("something else\n")
    later = time.time() + 60
    (tmp_path / "one/later.py").write_text("LATER\n")  # of the same size
    (tmp_path / "one/notes.txt").write_text("mine")
    (tmp_path / "one/__pycache__").mkdir()
    (tmp_path / "one/__pycache__/whole.cpython-311.pyc").write_text("compiled")
    (tmp_path / "one/extra/mine.txt").write_text("mine")
    (tmp_path / "loose.py").write_text("in no folder of a package")
    for name in ("later", "whole"):
        os.utime(tmp_path / f"one/{name}.py", (later, later))

    report = verify_files(LinuxHost(), [str(tmp_path)], foreign=True)

    assert {(one.package, one.kind): one.paths for one in report.damages} == {
        ("one", "missing"): ("one/gone.py",),
        ("one", "empty"): ("one/empty.py",),
        ("one", "changed"): ("one/changed.py", "one/later.py"),
        ("one", "foreign"): ("one/notes.txt",),
        ("two", "foreign"): ("one/extra/mine.txt",),
    }
    assert (report.packages, report.files, report.unlisted) == (2, 7, ())
    assert not verify_files(LinuxHost(), [str(tmp_path)], {"two"}).damages


def test_an_empty_init_that_wheels_share_may_go_with_one_of_them(tmp_path: Path) -> None:
    lay_down(tmp_path, "nvidia-cublas-cu12", {"nvidia/__init__.py": "", "nvidia/cublas/__init__.py": "version = 12"})
    (tmp_path / "nvidia/__init__.py").unlink()
    assert verify_files(LinuxHost(), [str(tmp_path)]).damages == ()

    (tmp_path / "nvidia/cublas/__init__.py").unlink()
    assert [one.paths for one in verify_files(LinuxHost(), [str(tmp_path)]).damages] == [("nvidia/cublas/__init__.py",)]


def test_a_package_without_a_list_is_told(tmp_path: Path) -> None:
    (tmp_path / "bare-2.0.dist-info").mkdir()
    (tmp_path / "bare-2.0.dist-info/METADATA").write_text("Name: bare")
    (tmp_path / "hollow-2.0.dist-info").mkdir()
    report = verify_files(LinuxHost(), [str(tmp_path)])
    assert report.unlisted == ("bare",)
    assert [(one.package, one.kind, one.paths) for one in report.damages] == [("hollow", "missing", ("hollow-2.0.dist-info/METADATA",))]
