"""From facts and a resolution to actions, loader, steps and warnings, on the toy world."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from cudnn_resolve.index.address import path_of
from cudnn_resolve.locking.read_pylock import read
from cudnn_resolve.planning.from_lock import plan_of_lock
from cudnn_resolve.planning.model import Plan
from cudnn_resolve.report.script import render as script
from cudnn_resolve.requirement.model import RequirementLine
from tests.lock_maker import answer, lock_of, pinned
from tests.worlds.load import facts, gpu, plan, request, versions, world

BOOK = world()
OLD_PYTHON = {"version": "3.10", "path": "/env/bin/python"}


def planned(*targets: str, options: dict[str, Any] | None = None, extras: tuple[str, ...] = (), **parts: Any) -> Plan:
    found = plan(BOOK, facts(**parts), request(BOOK, *targets, extras=extras, **(options or {})))
    assert found.is_satisfiable, found.conflict
    return found


def actions(found: Plan) -> dict[str, str]:
    return {one.name: one.action for one in found.pip}


def warned(found: Plan, code: str) -> list[str]:
    return [one.message for one in found.warnings if one.code == code]


def test_every_action() -> None:
    held = {"north": "1.0", "numpy": "2.1.0", "nvidia-cublas-cu12": "12.4.5.8"}
    held |= {"nvidia-cudnn-cu12": "9.1.0.70", "nvidia-cudnn-cu13": "9.13.0.50"}

    assert actions(planned("north==2.0", packages={"pip": held})) == {
        "north": "upgrade",
        "numpy": "downgrade",
        "nvidia-cudnn-cu12": "install",  # again: the removal below takes files of it along
        "nvidia-cublas-cu12": "keep",
        "nvidia-cuda-runtime-cu12": "install",
        "nvidia-cudnn-cu13": "remove",
    }


@pytest.mark.parametrize(
    ("installed", "target", "action"),
    [
        ("2.0", "north==2.0", "keep"),
        ("2.0.0", "north==2.0", "keep"),
        ("2.0+cu124", "north==2.0", "keep"),  # the index of the variant gives it a local part, the default index does not
        ("2.0+cu118", "north==2.0+cu118", "keep"),
        ("2.0+cu118", "north==2.0+cu124", "upgrade"),
        ("2.0", "north==2.0+cu118", "upgrade"),  # without a local part it is the default index's build, of CUDA 12.4
        ("3.0", "north==2.0", "downgrade"),
        ("not a version", "north==2.0", "upgrade"),
    ],
)
def test_one_version_under_several_names(installed: str, target: str, action: str) -> None:
    assert actions(planned(target, packages={"pip": {"north": installed}}))["north"] == action
    again, _ = plan_of_lock(lock_of(pinned(target)), "/project", facts(packages={"pip": {"north": installed}}), BOOK)
    assert again is not None
    assert actions(again)["north"] == action


def test_what_a_removal_takes_away_is_installed_again_from_a_lock_too() -> None:
    held = {"nvidia-cudnn-cu12": "9.1.0.70", "nvidia-cudnn-cu13": "9.13.0.50"}
    again, _ = plan_of_lock(lock_of(answer("north==2.0")), "/project", facts(packages={"pip": held}), BOOK)

    assert again is not None
    assert actions(again)["nvidia-cudnn-cu13"] == "remove"
    assert [(one.action, one.reinstall) for one in again.pip if one.name == "nvidia-cudnn-cu12"] == [("install", True)]


def test_a_build_that_is_taken_under_its_bare_version_is_told() -> None:
    (told,) = warned(planned("north==2.0+cu124"), "same-build")

    assert told.startswith("north==2.0+cu124 is north 2.0 on the configured index")
    assert not warned(planned("north==2.0"), "same-build")
    assert not warned(planned("north==2.0+cu118"), "same-build")
    assert not warned(planned("north==2.0+cu124", packages={"pip": {"north": "2.0+cu124"}}), "same-build")


def test_what_is_kept_keeps_the_name_that_it_has() -> None:
    assert versions(planned("north==2.0", packages={"pip": {"north": "2.0+cu124"}}))["north"] == "2.0+cu124"


def test_a_removed_package_says_for_whom() -> None:
    found = planned("north==2.0", packages={"pip": {"nvidia-cudnn-cu13": "9.13.0.50"}})

    (one,) = [one for one in found.pip if one.action == "remove"]
    assert (one.name, one.version) == ("nvidia-cudnn-cu13", "9.13.0.50")
    assert "nvidia-cudnn-cu12" in one.because[0]


def test_the_stack_comes_first() -> None:
    assert [one.name for one in planned("north==2.0").pip] == [
        "north",
        "nvidia-cudnn-cu12",
        "nvidia-cublas-cu12",
        "nvidia-cuda-runtime-cu12",
        "numpy",
    ]


def test_every_pin_has_its_reason() -> None:
    because = {one.name: one.because for one in planned("north").pip}

    assert all(because.values())
    assert any("north 2.0" in one for one in because["nvidia-cudnn-cu12"])


def kinds(found: Plan) -> list[tuple[str, str]]:
    return [(one.kind, one.value) for one in found.environment]


def test_how_libraries_are_found() -> None:
    assert kinds(planned("north==2.0")) == [("none", "")]
    assert kinds(planned("south==2.0")) == [("none", "")]
    assert kinds(planned("south==1.1", python=OLD_PYTHON)) == [("preload", "south")]
    assert kinds(planned("south==1.1", python=OLD_PYTHON, options={"channel": "apt"})) == [("none", "")]
    assert "RPATH" in planned("north==2.0").environment[0].why
    assert "bundles its libraries in its wheel" in planned("north==2.0+cu118").environment[0].why


SYSTEM: dict[str, Any] = {
    "options": {"channel": "apt"},
    "cuda_toolkits": [{"version": "12.2", "path": "/usr/local/cuda-12.2", "source": "runfile"}],
}


@pytest.mark.parametrize(
    ("path", "loader", "kind"),
    [
        ("/opt/cudnn-9.3/lib", {}, "ldconfig"),
        ("/opt/cudnn-9.3/lib", {"ld_library_path": ["/opt/cudnn-9.3/lib"]}, "none"),
        ("/opt/cudnn-9.3/lib", {"ldconfig": ["/opt/cudnn-9.3/lib/libcudnn.so.9"]}, "none"),
        ("/usr/lib/x86_64-linux-gnu", {}, "none"),
    ],
)
def test_a_copy_outside_the_loaders_places_gets_a_cache_file(path: str, loader: dict[str, Any], kind: str) -> None:
    copy = {"version": "9.3.0.75", "soname": 9, "cuda": "12", "path": path, "source": "other", "complete": True}
    found = planned("south==2.0", cudnn=[copy], loader=loader, **SYSTEM)

    assert [one.kind for one in found.environment] == [kind]
    assert kind != "ldconfig" or found.environment[0].value == path
    assert [step.kind for step in found.steps if step.needs_root] == (["ldconfig"] if kind == "ldconfig" else [])


def test_steps_in_a_safe_order() -> None:
    held = {"pip": {"north": "1.0"}, "apt": {}}
    python = {"version": "3.10.9", "path": "/env/bin/python"}
    options = {"channel": "apt"}
    found = planned("north==2.0+cu118", "south==1.1", extras=("left-pad",), options=options, packages=held, python=python)

    assert [step.kind for step in found.steps] == ["apt-repository", "apt", "apt", "pip", "pip", "pip-unpinned"]
    assert [step.needs_root for step in found.steps] == [True, True, True, False, False, False]
    assert len({step.id for step in found.steps}) == len(found.steps)


@pytest.mark.parametrize(("keyring", "kinds"), [({}, ["apt-repository", "apt", "apt"]), ({"cuda-keyring": "1.1-1"}, ["apt", "apt"])])
def test_a_repository_that_apt_knows_by_nvidias_keyring_is_not_added(keyring: dict[str, str], kinds: list[str]) -> None:
    found = planned("south==2.0", options={"channel": "apt"}, packages={"pip": {}, "apt": keyring})

    assert [step.kind for step in found.steps if step.needs_root] == kinds


def test_what_the_installer_chooses_is_asked_for_with_all_that_is_required_of_it() -> None:
    asked = request(BOOK, "south==2.0", extras=("left-pad>=1", "left-pad!=1.3", "right-pad"))
    limit = RequirementLine(text="left-pad<2", origin="constraints.txt:1", constraint=True)
    found = plan(BOOK, facts(), replace(asked, requirements=(*asked.requirements, limit)))

    assert found.steps[-1].kind == "pip-unpinned"
    assert found.steps[-1].argv is not None
    assert found.steps[-1].argv[-2:] == ("left-pad!=1.3,<2,>=1", "right-pad")


def test_removals_come_before_installs() -> None:
    found = planned("north==2.0", packages={"pip": {"nvidia-cudnn-cu13": "9.13.0.50"}})

    assert [step.kind for step in found.steps] == ["pip-remove", "pip"]
    assert found.steps[0].argv == ("/env/bin/python", "-m", "pip", "uninstall", "-y", "nvidia-cudnn-cu13")


def test_each_index_has_its_own_command() -> None:
    found = planned("north==2.0+cu118")
    commands = [" ".join(step.argv or ()) for step in found.steps]

    assert any("--index-url https://index.example/cu118" in one and "north==2.0+cu118" in one and "numpy" not in one for one in commands)
    assert any("--index-url" not in one and "numpy==1.26.4" in one for one in commands)
    assert all("--no-deps" in one for one in commands)


def test_apt_packages_are_pinned_and_held() -> None:
    found = planned("south==2.0", options={"channel": "apt"})
    install, hold = [step.argv for step in found.steps if step.kind == "apt"]

    assert install is not None
    assert set(install[-2:]) == {"cuda-libraries-12-2=12.2.0-1", "libcudnn9-cuda-12=9.3.0.75-1"}
    assert hold == ("apt-mark", "hold", "cuda-libraries-12-2", "libcudnn9-cuda-12")


def test_apt_packages_that_are_there_need_no_step() -> None:
    here = {"pip": {}, "apt": {"cuda-libraries-12-2": "12.2.0-1", "libcudnn9-cuda-12": "9.3.0.75-1"}}
    found = planned("south==2.0", options={"channel": "apt"}, packages=here)

    assert {one.action for one in found.apt} == {"keep"}
    assert not [step for step in found.steps if step.kind.startswith("apt")]
    assert not warned(found, "needs-root")


def test_nothing_to_do() -> None:
    done = planned("north==2.0", packages={"pip": versions(planned("north==2.0"))})

    assert not done.steps
    assert not done.changes


REQUIRES = {
    "app": ["numpy>=2"],
    "old": ["numpy<1.20"],
    "fine": ["numpy"],
    "optional": ["numpy>=2; extra == 'x'"],
    "elsewhere": ["numpy>=2; sys_platform == 'win32'"],
    "garbled": ["numpy >>> 2"],
    "torchlike": ["nvidia-cudnn-cu12==9.1.0.70"],
}


def test_what_a_plan_breaks_is_told_from_what_was_broken() -> None:
    held = {**dict.fromkeys(REQUIRES, "1.0"), "numpy": "2.1.0", "nvidia-cudnn-cu12": "9.1.0.70"}
    found = planned("north==2.0", "south==2.0", packages={"pip": held, "requires": REQUIRES})

    (breaks,) = warned(found, "breaks")
    (before,) = warned(found, "broken-before")
    assert "app 1.0 requires numpy>=2" in breaks
    assert "2.1.0 becomes 1.26.4" in breaks
    assert "old 1.0 requires numpy<1.20" in before


def test_a_library_within_its_abi_range_breaks_nothing() -> None:
    held = {"torchlike": "1.0", "nvidia-cudnn-cu12": "9.1.0.70"}
    found = planned("south==2.0", packages={"pip": held, "requires": REQUIRES})

    assert actions(found)["nvidia-cudnn-cu12"] == "upgrade"
    assert not warned(found, "breaks")


def test_a_removal_breaks_what_needs_the_package() -> None:
    held = {"app": "1.0", "nvidia-cudnn-cu13": "9.13.0.50"}
    found = planned("north==2.0", packages={"pip": held, "requires": {"app": ["nvidia-cudnn-cu13>=9.12"]}})

    assert "is removed" in warned(found, "breaks")[0]


def test_the_policy_is_named_where_it_costs_something() -> None:
    found = planned("north==2.0", driver={"version": "535.54.03"})

    assert found.stack is not None
    assert found.stack.driver_policy == "minor"
    assert "PTX" in warned(found, "driver-policy")[0]
    assert not warned(planned("north==2.0"), "driver-policy")


@pytest.mark.parametrize(
    ("parts", "code", "words"),
    [
        ({"driver": None}, "driver-unknown", "unknown driver: the target machine needs driver 525.60.13"),
        ({"gpus": None}, "gpu-unknown", "unknown GPU"),
        ({"gpus": []}, "gpu-unknown", "no GPU found"),
        ({"gpus": [{"name": "a new one"}]}, "gpu-unknown", "a new one"),
        ({"python": None}, "python-unknown", "the plan is for Python 3.11"),
        ({"python": {"version": "3.11", "externally_managed": True}}, "externally-managed", "PEP 668"),
    ],
)
def test_what_is_not_known_is_said(parts: dict[str, Any], code: str, words: str) -> None:
    found = planned("north==2.0", **parts)

    assert [words in one for one in warned(found, code)] == [True]


def test_no_driver_is_not_an_unknown_one() -> None:
    from cudnn_resolve.facts.codec import from_mapping

    none = from_mapping({"driver": None, "gpus": [], "python": {"version": "3.11"}, "platform": {"arch": "x86_64"}}, "a test")
    found = plan(BOOK, none, request(BOOK, "north==2.0"))

    assert "no NVIDIA driver found" in warned(found, "driver-unknown")[0]


def test_a_sound_machine_gets_no_warning() -> None:
    assert planned("north==2.0").warnings == ()


def test_advisories_that_were_avoided_are_named() -> None:
    found = planned("north==3.0", driver={"version": "580.65.06"})

    assert "nvidia-cudnn-cu13 9.12.0.46" in warned(found, "advisory")[0]
    assert "a part is missing" in warned(found, "advisory")[0]


def test_advisories_for_other_gpus_are_not() -> None:
    assert not warned(planned("south==2.0", gpus=gpu("8.0")), "advisory")


def test_traps_of_the_version_alone() -> None:
    assert warned(planned("south==1.1", python=OLD_PYTHON), "trap-south-old") == ["south 1.1: it is old; take 2.0"]
    assert not warned(planned("south==2.0"), "trap-south-old")


def test_a_copy_that_is_found_first_is_named() -> None:
    copy = {"version": "9.1.0.70", "soname": 9, "cuda": "12", "path": "/opt/cudnn/lib", "source": "other", "complete": True}
    parts: dict[str, Any] = {"cudnn": [copy], "loader": {"ld_library_path": ["/opt/cudnn/lib"]}}

    assert "/opt/cudnn/lib with cuDNN 9.1.0.70" in warned(planned("south==2.0", **parts), "shadowed-cudnn")[0]
    assert not warned(planned("north==2.0", **parts), "shadowed-cudnn")  # an RPATH comes before LD_LIBRARY_PATH


def test_a_cpu_plan_speaks_of_no_gpu() -> None:
    found = planned("north", options={"device": "cpu"}, gpus=[], driver=None)

    assert found.stack is not None
    assert (found.stack.driver_min, found.stack.cuda, found.stack.cudnn) == (None, None, None)
    assert not [one for one in found.warnings if one.code.startswith(("gpu", "driver"))]


def test_a_conflict_is_a_plan_without_anything_to_do() -> None:
    found = plan(BOOK, facts(), request(BOOK, "north==3.0"))

    assert not found.is_satisfiable
    assert (found.pip, found.apt, found.steps, found.stack) == ((), (), (), None)
    assert found.targets == ("north==3.0",)


def test_an_environment_without_pip_gets_it_first() -> None:
    sources = {"packages.pip": "metadata on the import path"}
    bare = planned("north==2.0", python=OLD_PYTHON, packages={"pip": {"numpy": "1.26.4"}}, sources=sources)
    held = planned("north==2.0", python=OLD_PYTHON, packages={"pip": {"numpy": "1.26.4", "pip": "24.0"}}, sources=sources)

    assert bare.steps[0].argv == ("/env/bin/python", "-m", "ensurepip")
    assert "uv pip install --python /env/bin/python" in bare.steps[0].why
    assert held.steps == bare.steps[1:]
    assert '"$PYTHON" -m ensurepip' in script(bare)


def test_packages_that_lie_over_one_another_already_stay_until_one_of_them_changes() -> None:
    from cudnn_resolve.host.tables import open_book
    from cudnn_resolve.planning.difference import pip_actions
    from cudnn_resolve.planning.model import PipAction

    def acted(version: str, installed: dict[str, str]) -> dict[str, str]:
        wanted = (PipAction(name="opencv-python", version=version),)
        return {one.name: one.action for one in pip_actions(wanted, installed, open_book(()), gpu={})}

    both = {"opencv-python": "4.10.0.84", "opencv-python-headless": "4.10.0.84"}
    assert acted("4.10.0.84", both) == {"opencv-python": "keep"}
    assert acted("4.11.0.86", both) == {"opencv-python": "upgrade", "opencv-python-headless": "remove"}
    assert acted("4.10.0.84", {"opencv-python-headless": "4.10.0.84"}) == {"opencv-python": "install", "opencv-python-headless": "remove"}


def test_a_lock_in_a_folder_whose_name_is_no_text() -> None:
    """Bytes that are no UTF-8 come as surrogates, and must lead back to the file."""
    text = (
        'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "demo"\nversion = "1.0"\n'
        f'wheels = [{{path = "wheels/demo-1.0-py3-none-any.whl", hashes = {{sha256 = "{"0" * 64}"}}}}]\n'
    )
    found, _ = plan_of_lock(read(text), "/project/\udcff", facts(python=OLD_PYTHON), BOOK)
    assert found is not None
    (file,) = (one.file for one in found.pip)
    assert file is not None
    assert file.url == "file:///project/%FF/wheels/demo-1.0-py3-none-any.whl"
    assert path_of(file.url) == "/project/\udcff/wheels/demo-1.0-py3-none-any.whl"


def test_a_lock_tells_the_pins_of_installed_packages_that_it_leaves() -> None:
    packages = {"pip": {"north": "3.0", "app": "1.0"}, "requires": {"app": ["north>=3", "other; extra == 'more'"]}}
    found, _ = plan_of_lock(lock_of(pinned("north==2.0")), "/project", facts(packages=packages), BOOK)

    assert found is not None
    assert warned(found, "breaks") == ["app 1.0 requires north>=3; north 3.0 becomes 2.0"]
    assert [(one.package, one.requested_by, one.declared, one.chosen) for one in found.overrides] == [("north", "app 1.0", ">=3", "2.0")]
