"""What the extras of a framework mean: builds that they fix, packages that they bring, and those that there are not."""

from __future__ import annotations

from typing import Any

import pytest

from cudnn_resolve.errors import UsageError
from cudnn_resolve.requirement import extra
from cudnn_resolve.requirement.target import accepts, parse_target
from cudnn_resolve.resolution.model import Conflict, Resolution
from tests.fake_source import FakeSource, Published, index_of
from tests.worlds.load import changed, facts, outcome, pins, request, texts

SOUTH = texts()["wheel/south"].replace(
    'nvidia-cudnn-cu12==9.3.0.75; extra == \'cuda\'"], extras = ["cuda"]',
    "nvidia-cudnn-cu12==9.3.0.75; extra == 'cuda'\", \"nvidia-cublas-cu12==12.2.1.16; extra == 'gpu_12'\", "
    "\"nvidia-cuda-runtime-cu12==12.2.53; extra == 'gpu_12'\", \"nvidia-cudnn-cu12==9.3.0.75; extra == 'gpu_12'\", "
    '"pillow; extra == \'pictures\'"], extras = ["cuda", "gpu_12", "pictures", "cpu"]',
)
FRAMEWORK = texts()["framework/south"].replace('title = "South"', 'title = "South"\nother_accelerators = ["tpu"]')
CPU = '\n[[build]]\nversion = "2.0"\nvariant = "cpu"\nsource = "made"\n'
BOOK = changed({"wheel/south": SOUTH, "framework/south": FRAMEWORK + CPU})


def builds(text: str) -> list[tuple[str, str]]:
    target = parse_target(text, BOOK)
    return [(build.version, build.variant) for build in BOOK.framework("south").builds if accepts(target, build, BOOK)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("south[cuda]", [("2.0", "gpu")]),
        ("south[gpu_12]", [("2.0", "gpu")]),
        ("south[GPU.12]", [("2.0", "gpu")]),
        ("south[cuda]<2", []),
        ("south[cpu]", [("2.0", "cpu")]),
        ("south[cpu,cuda]", []),
        ("south[pictures]", [("2.0", "gpu"), ("2.0", "cpu")]),
    ],
)
def test_the_builds_that_have_an_extra(text: str, expected: list[tuple[str, str]]) -> None:
    assert builds(text) == expected


def test_extras_that_only_bring_packages() -> None:
    assert extra.package_extras(BOOK, parse_target("south[cuda,pictures]", BOOK)) == ("pictures",)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("numpy", set()),
        ("numpy; python_version < '3.9'", set()),
        ("kubernetes; extra == 'k8s'", {"k8s"}),
        ('a; (os_name == "posix" and extra == "all_extras") or "b" == extra', {"all-extras", "b"}),
    ],
)
def test_the_extras_that_a_line_names(line: str, names: set[str]) -> None:
    assert extra.named_extras(line) == names


def answer(text: str, source: FakeSource | None = None, extras: tuple[str, ...] = (), **options: Any) -> Resolution | Conflict:
    return outcome(BOOK, facts(**options), request(BOOK, text, extras=extras), source)


def test_an_extra_brings_its_packages() -> None:
    assert "pillow" in pins(answer("south[pictures]"))
    assert "pillow" not in pins(answer("south"))


def test_an_extra_for_cpu_is_a_request_for_builds_without_gpu() -> None:
    found = answer("south[cpu]")

    assert [build.variant for build in found.builds] == ["cpu"] if isinstance(found, Resolution) else False
    assert found.request.device == "cpu"
    assert "nvidia-cudnn-cu12" not in pins(found)


def test_an_extra_of_wheels_takes_its_libraries_from_nowhere_else() -> None:
    there: dict[str, Any] = {
        "cudnn": [{"version": "9.8.0.87", "soname": 9, "cuda": "12", "path": "/usr/lib/libcudnn.so.9", "source": "apt"}]
    }

    assert "nvidia-cudnn-cu12" in pins(answer("south[cuda]==2.0", **there))
    found = outcome(BOOK, facts(**there), request(BOOK, "south[cuda]==2.0", channel="apt"))
    assert isinstance(found, Conflict)


@pytest.mark.parametrize("source", [None, index_of(BOOK)])
def test_an_extra_that_no_release_has_is_refused_with_those_that_there_are(source: FakeSource | None) -> None:
    with pytest.raises(UsageError, match="no release of south has an extra `picture`") as error:
        answer("south[picture]", source)

    assert error.value.code == "unknown-extra"
    assert "did you mean `pictures`" in str(error.value.hint)
    assert "cuda" in str(error.value.hint)


def test_an_extra_that_only_the_index_knows_is_taken_from_there() -> None:
    tags = ("cp311-cp311-manylinux_2_17_x86_64",)
    new = {"south": {"2.0": Published(("numpy", "lib; extra == 'fresh'"), tags, extras=("fresh",))}, "lib": {"1.0": Published()}}

    assert pins(answer("south[fresh]", index_of(BOOK, new)))["lib"] == "1.0"


def test_an_extra_for_another_accelerator_is_out_of_scope() -> None:
    with pytest.raises(UsageError, match="another accelerator"):
        answer("south[tpu]")


def test_an_extra_that_a_release_lacks_is_a_conflict_that_says_which_have_it() -> None:
    found = answer("south[cuda]==1.1", python={"version": "3.10"})

    assert isinstance(found, Conflict)
    assert "those with cuda are 2.0 to 2.0" in found.message
    assert any("south==1.1 instead of south[cuda]==1.1" in way.change for way in found.relaxations)
    assert any("south[cuda]==2.0" in way.change for way in found.relaxations)
