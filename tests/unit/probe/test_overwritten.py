"""Wheels whose files another wheel wrote over."""

from __future__ import annotations

from cudnn_resolve.diagnosis.machine_check import diagnose_facts
from cudnn_resolve.facts.codec import from_mapping
from cudnn_resolve.probe.overwritten import with_overwritten
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
        assert f"uninstall -y {won} {lost}" in str(finding.remedy[0].command)


def test_files_as_they_were_installed_are_no_problem() -> None:
    assert not with_overwritten(host(100), FACTS, ["nvidia-cudnn-cu12"]).problems


def test_a_record_may_be_anything() -> None:
    for records in ("", 'a,b\n"', "x" * 3000, "../../etc/passwd,sha256=x,{size}\n", "a,b,99999999999999999999\n"):
        assert not with_overwritten(host(1, records=records), FACTS, NAMES).problems
    assert not with_overwritten(FakeHost({}), FACTS, NAMES).problems
