"""A release of PyTorch that came to the index today is in the plans of today, without a row of its own."""

from __future__ import annotations

import json
from contextvars import copy_context

import pytest
from msgspec.structs import replace

from cudnn_resolve.facts.codec import from_mapping
from cudnn_resolve.operations.options import PlanRequest
from cudnn_resolve.operations.question import Question, gather_question, share
from tests.index_server import IndexServer
from tests.program import run

RUNTIME = {"nvidia-cuda-runtime": "13.0.96", "nvidia-cublas": "13.1.0.3", "nvidia-cudnn-cu13": "9.13.0.50", "nvidia-nccl-cu13": "2.27.7"}
MACHINE = ("--gpu", "H100", "--driver", "580.65.06", "--python-version", "3.12", "--platform", "linux_x86_64", "--glibc", "2.35")


@pytest.mark.slow
def test_a_new_torch_is_planned_the_day_it_comes() -> None:
    with IndexServer(metadata_beside=True) as index:
        for name, version in {**RUNTIME, "filelock": "3.20.0"}.items():
            index.add_wheel(name, version)
        index.add_wheel(
            "torch",
            "99.1.0",
            requires=["filelock", *(f"{name}=={version}" for name, version in RUNTIME.items())],
            tag="cp312-cp312-manylinux_2_28_x86_64",
        )
        words = ("-f", "torch", *MACHINE, "--index-url", index.url, "--no-variant-indexes")
        done = run("plan", *words, "--format", "json")
        shown = run("plan", *words).stdout

    assert done.returncode == 0, done.stdout + done.stderr
    plan = json.loads(done.stdout)
    (torch,) = plan["stack"]["frameworks"]
    assert (torch["version"], torch["cuda_built"], torch["cudnn_built"]) == ("99.1.0", "13.0", "9.13.0.50")
    assert {one["name"]: one["version"] for one in plan["pip"]} == {"torch": "99.1.0", "filelock": "3.20.0", **RUNTIME}
    assert [one["code"] for one in plan["warnings"] if one["code"] in ("provisional", "known-in-part")] == ["provisional"]
    assert "its index was not read" not in shown
    assert "99.1.0" in shown


def test_what_questions_have_in_common_is_what_each_of_them_would_find_alone() -> None:
    with IndexServer(metadata_beside=True) as index:
        ours = {"3.12.3": "9.13.0.50", "3.12.9": "9.14.0.64"}
        requires = ["nvidia-cuda-runtime==13.0.96"]
        requires += [f'nvidia-cudnn-cu13=={cudnn}; python_full_version == "{python}"' for python, cudnn in ours.items()]
        index.add_wheel("torch", "99.1.0", requires=requires, tag="cp312-cp312-manylinux_2_28_x86_64")
        request = PlanRequest(framework=("torch",), index_url=index.url, no_variant_indexes=True)

        def question(python: str) -> Question:
            said = {"python": {"version": python}, "platform": {"arch": "x86_64", "glibc": "2.35"}}
            facts = from_mapping(said, "facts")
            return gather_question(replace(request, given=facts), facts=facts)

        here = copy_context()
        here.run(share)
        first, second, again = (here.run(question, python) for python in ("3.12.3", "3.12.9", "3.12.3"))

    assert again.source is second.source is first.source
    assert again.book is first.book
    for one, cudnn in zip((first, second), ours.values(), strict=True):
        found = {str(build.cudnn) for build in one.book.framework("torch").builds if build.version == "99.1.0" and build.cuda is not None}
        assert found == {cudnn}
