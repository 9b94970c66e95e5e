"""Resolutions merged to one lock, and its text."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from packaging.pylock import Pylock

from cudnn_resolve.errors import InputError, WorldError
from cudnn_resolve.locking.model import Environment, FolderWheel, because_of, marker_text, version_of
from cudnn_resolve.locking.read_pylock import read
from cudnn_resolve.locking.write_pylock import write
from cudnn_resolve.requirement.source import Direct, File, Metadata, Offer
from cudnn_resolve.resolution.model import Override
from tests.fake_source import index_of
from tests.lock_maker import BOOK, answer, lock_of, pinned, pins

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_the_whole_text(golden: Callable[[str, str], None]) -> None:
    golden("lock-joint.pylock.toml", write(lock_of(answer("north", "south", extras=("pillow",)))))


def test_a_marker_that_has_no_text_is_no_internal_error() -> None:
    text = write(lock_of(answer("north==2.0")))
    lock = read(text.replace("[[packages]]\n", "[[packages]]\nmarker = 'sys_platform == \"lin\\\\ux\"'\n", 1))
    with pytest.raises(InputError, match="the lock cannot be written"):
        write(lock)


def test_it_is_what_pep_751_says_and_is_read_back_as_it_was() -> None:
    lock = lock_of(answer("north==2.0"))
    text = write(lock)
    whole = Pylock.from_dict(tomllib.loads(text))
    whole.validate()

    assert {one.name: str(one.version) for one in whole.packages} == pins(lock)
    assert str(whole.requires_python) == "==3.11.*"
    assert all(wheel.hashes and wheel.url and wheel.size for one in whole.packages for wheel in one.wheels or ())
    assert read(text) == lock


def test_the_order_of_answers_and_pins_changes_no_byte() -> None:
    x86, arm = pinned("app==1.0 +lib", "lib==2.0"), pinned("app==1.0 +lib", "lib==2.0", arch="aarch64")
    turned = replace(x86, resolution=replace(x86.resolution, pip=tuple(reversed(x86.resolution.pip))))

    assert write(lock_of(x86, arm)) == write(lock_of(arm, turned))


def test_an_upgrade_of_one_package_changes_its_entry_alone() -> None:
    old = write(lock_of(pinned("app==1.0", "lib==2.0", "web==3.0"))).splitlines()
    new = write(lock_of(pinned("app==1.0", "lib==2.1", "web==3.0"))).splitlines()

    assert [one.split(" = ")[0] for one, other in zip(old, new, strict=True) if one != other] == ["version", "name", "url", "sha256"]


def test_platforms_share_what_they_can() -> None:
    both = ("cp311-cp311-manylinux_2_17_x86_64", "cp311-cp311-manylinux_2_17_aarch64", "cp312-cp312-manylinux_2_17_x86_64")
    x86 = pinned("pure==1.0", f"fast==1.0 {' '.join(both)}", "only==1.0", "two==1.0")
    arm = pinned("pure==1.0", f"fast==1.0 {' '.join(both)}", "two==2.0 +pure", arch="aarch64")
    entries = {(str(one.name), version_of(one)): one for one in lock_of(x86, arm).packages}

    assert entries["pure", "1.0"].marker is None
    assert [one.name for one in entries["pure", "1.0"].wheels or ()] == ["pure-1.0-py3-none-any.whl"]
    assert [one.name for one in entries["fast", "1.0"].wheels or ()] == [
        "fast-1.0-cp311-cp311-manylinux_2_17_aarch64.whl",
        "fast-1.0-cp311-cp311-manylinux_2_17_x86_64.whl",
    ]
    assert marker_text(entries["only", "1.0"].marker) == "platform_machine == 'x86_64'"
    assert marker_text(entries["two", "1.0"].marker) == "platform_machine == 'x86_64'"
    assert marker_text(entries["two", "2.0"].marker) == "platform_machine == 'aarch64'"


def test_a_dependency_says_its_version_where_two_entries_have_its_name() -> None:
    x86, arm = pinned("app==1.0 +lib", "lib==1.0"), pinned("app==1.0 +lib", "lib==2.0", arch="aarch64")
    app = next(one for one in lock_of(x86, arm).packages if one.name == "app")

    assert app.dependencies == [{"name": "lib", "version": "1.0"}, {"name": "lib", "version": "2.0"}]
    alone = next(one for one in lock_of(x86).packages if one.name == "app")
    assert alone.dependencies == [{"name": "lib"}]


def test_source_archives_stand_in_only_where_no_wheel_fits_and_are_named() -> None:
    wheel = "cp311-cp311-manylinux_2_17_x86_64"
    lock = lock_of(pinned(f"app==1.0 {wheel} sdist"), pinned(f"app==1.0 {wheel} sdist", "old==1.0 sdist", arch="aarch64"))
    app, old = lock.packages

    assert app.sdist is not None
    assert app.sdist.name == "app-1.0.tar.gz"
    assert len(app.wheels or ()) == 1
    assert not old.wheels
    assert lock_of(pinned(f"app==1.0 {wheel} sdist")).packages[0].sdist is None
    text = write(lock)
    assert "# source: app 1.0 has no wheel for every platform, and is built from source when it is installed\n[[packages]]" in text
    assert "# source: old 1.0 has no wheel that fits" in text


def test_a_comment_says_what_was_declared_and_what_was_chosen_instead() -> None:
    found = pinned("nvidia-cudnn-cu12==9.3.0.75")
    override = Override(
        package="nvidia-cudnn-cu12", requested_by="north 2.0", declared="==9.1.0.70", chosen="9.3.0.75", reason="south needs 9.3\nat least"
    )
    found = replace(found, stack=replace(found.stack, overrides=(override,)))
    text = write(lock_of(found))

    line = "# override: north 2.0 declares ==9.1.0.70, 9.3.0.75 is chosen: south needs 9.3 at least"
    assert f'{line}\n[[packages]]\nname = "nvidia-cudnn-cu12"' in text
    tool = read(text).tool
    assert tool is not None
    assert tool.stacks[0].overrides == (override,)


@pytest.mark.parametrize("kind", ["preload", "folder"])
def test_the_head_says_what_installers_cannot_do(kind: str) -> None:
    found = pinned("app==1.0")
    wheel = FolderWheel(name="nvidia-cudnn-cu12", version="8.9.7.29") if kind == "folder" else None
    way = Environment(kind=kind, value="onnxruntime", why="it does not look into the NVIDIA wheels", wheel=wheel)
    lock = lock_of(replace(found, stack=replace(found.stack, environment=(way,))))
    head = write(lock).split("lock-version")[0]

    assert "# installers cannot set up the loader for onnxruntime: run `cudnn-resolve apply` on this lock" in head
    assert read(write(lock)) == lock
    assert "loader" not in write(lock_of(found)).split("lock-version")[0]


def test_what_platforms_share_of_the_stack_is_said_once() -> None:
    x86, arm = pinned("app==1.0"), pinned("app==1.0", arch="aarch64")
    arm = replace(arm, stack=replace(arm.stack, cuda=None, driver_min="560.28.03"))
    lock = lock_of(x86, arm)
    table = tomllib.loads(write(lock))["tool"]["cudnn-resolve"]

    assert table["cudnn"] == x86.stack.cudnn
    assert table["platform"]["linux_aarch64"] == {"driver_min": "560.28.03"}
    assert table["platform"]["linux_x86_64"] == {"driver_min": x86.stack.driver_min, "cuda": x86.stack.cuda}
    assert read(write(lock)) == lock


def test_files_are_listed_once_with_strong_hashes_and_without_secrets() -> None:
    found = pinned("app==1.0")
    pin = found.resolution.pip[0]
    file = File(
        filename="app-1.0-py3-none-any.whl",
        url="https://me:secret@index.example/app-1.0-py3-none-any.whl#sha256=00",
        hashes={"md5": "0" * 32, "sha256": "A" * 64},
        uploaded="2024-02-05T23:55:32.123456+00:00",
        origin="https://token@index.example/simple",
    )
    offer = Offer(version="1.0", files=(file, replace(file, filename="app-1.0-py2.py3-none-any.whl", hashes={})))
    pin = replace(pin, offer=offer, file=file)
    text = write(lock_of(replace(found, resolution=replace(found.resolution, pip=(pin,)))))

    assert "secret" not in text
    assert "token" not in text
    assert "md5" not in text
    assert 'url = "https://index.example/app-1.0-py3-none-any.whl"' in text
    assert "upload-time = 2024-02-05 23:55:32+00:00" in text
    assert f'sha256 = "{"a" * 64}"' in text
    assert "py2.py3" not in text, "a file without a hash has no place in a lock"


def test_a_file_below_the_folder_of_the_lock_is_named_by_its_path() -> None:
    found = pinned("app==1.0")
    pin = found.resolution.pip[0]
    assert pin.file is not None
    near = replace(pin.file, url="file:///project/my%20wheels/app-1.0-py3-none-any.whl", origin=None)
    far = replace(near, url="file:///elsewhere/app-1.0-py3-none-any.whl")

    for file, url, path in ((near, None, "my wheels/app-1.0-py3-none-any.whl"), (far, far.url, None)):
        one = replace(
            found, resolution=replace(found.resolution, pip=(replace(pin, file=file, offer=Offer(version="1.0", files=(file,))),))
        )
        wheel = (lock_of(one).packages[0].wheels or ())[0]
        assert (wheel.url, wheel.path) == (url, path)


@pytest.mark.parametrize("editable", [True, False])
def test_a_project_of_the_user_is_a_directory(*, editable: bool) -> None:
    found = pinned("app==1.0")
    metadata = Metadata((), ">=3.9", ())
    direct = Direct(
        name="app",
        url="file:///project/lib/app",
        offer=Offer(version="1.0", files=()),
        metadata=metadata,
        folder="/project/lib/app",
        editable=editable,
    )
    pin = replace(found.resolution.pip[0], offer=direct.offer, file=None)
    request = replace(found.resolution.request, direct={"app": direct})
    lock = lock_of(replace(found, resolution=replace(found.resolution, pip=(pin,), request=request)))
    app = lock.packages[0]

    assert app.directory is not None
    assert (app.directory.path, app.directory.editable, app.version, str(app.requires_python)) == (
        "lib/app",
        editable or None,
        None,
        ">=3.9",
    )
    assert read(write(lock)) == lock


def test_an_archive_at_an_address_of_the_users_is_an_archive() -> None:
    found = pinned("app==1.0")
    file = File("app-1.0.zip", "https://files.example/app-1.0.zip", {"sha256": "1" * 64})
    direct = Direct(name="app", url=file.url, offer=Offer(version="1.0", files=(file,)), metadata=Metadata((), None, ()))
    pin = replace(found.resolution.pip[0], offer=direct.offer, file=file)
    request = replace(found.resolution.request, direct={"app": direct})
    app = lock_of(replace(found, resolution=replace(found.resolution, pip=(pin,), request=request))).packages[0]

    assert app.archive is not None
    assert app.archive.url == file.url
    assert not app.wheels
    assert app.sdist is None


@pytest.mark.parametrize(
    ("url", "path"), [("file:///project/a%20b/app-1.0.zip", "a b/app-1.0.zip"), ("file:///opt/app-1.0.zip", "/opt/app-1.0.zip")]
)
def test_an_archive_on_this_machine_is_named_by_its_path(url: str, path: str) -> None:
    found = pinned("app==1.0")
    file = File("app-1.0.zip", url, {"sha256": "1" * 64})
    direct = Direct(name="app", url=url, offer=Offer(version="1.0", files=(file,)), metadata=Metadata((), None, ()))
    request = replace(found.resolution.request, direct={"app": direct})
    app = lock_of(replace(found, resolution=replace(found.resolution, request=request))).packages[0]

    assert app.archive is not None
    assert (app.archive.path, app.archive.url) == (path, None)


def test_wishes_and_rules_of_the_matrix_are_reasons_and_mere_declarations_are_not() -> None:
    entries = {str(one.name): one for one in lock_of(answer("north==2.0", extras=("pillow",))).packages}

    assert because_of(entries["north"]) == ("north==2.0, asked for",)
    assert because_of(entries["pillow"]) == ("pillow, asked for in requirements.txt",)
    assert not because_of(entries["numpy"])
    assert any("is built with cuDNN 9.1" in one for one in because_of(entries["nvidia-cudnn-cu12"]))


def test_gpus_are_those_that_every_part_has_code_for() -> None:
    stack = answer("north==2.0").stack

    assert "7.5" in stack.compute_capabilities
    assert "3.5" not in stack.compute_capabilities
    assert set(stack.ptx_capabilities).isdisjoint(stack.compute_capabilities)
    assert stack.driver_min is not None


def test_a_pin_without_files_is_refused_by_name() -> None:
    bare = answer("north==2.0", source=index_of(BOOK))
    pip = tuple(replace(pin, offer=None, file=None) if pin.name == "numpy" else pin for pin in bare.resolution.pip)
    with pytest.raises(WorldError, match="no files are known for numpy; a lock contains every file with its hashes") as caught:
        lock_of(replace(bare, resolution=replace(bare.resolution, pip=pip)))
    assert caught.value.code == "lock-no-files"
    with pytest.raises(WorldError, match=r"numpy; the index of CUDA 11\.8 does not answer"):
        lock_of(replace(bare, resolution=replace(bare.resolution, pip=pip, unreached={"numpy": "the index of CUDA 11.8 does not answer"})))


def test_a_release_without_a_file_for_the_machine_is_refused_by_name() -> None:
    found = pinned("app==1.0 cp312-cp312-manylinux_2_17_x86_64")
    with pytest.raises(WorldError, match=r"the index has no file of app for Python 3\.11\.9 on linux_x86_64"):
        lock_of(found)


def test_a_file_without_a_hash_that_counts_is_refused() -> None:
    found = pinned("app==1.0")
    pin = found.resolution.pip[0]
    assert pin.file is not None
    weak = replace(pin.file, hashes={"md5": "0" * 32})
    with pytest.raises(WorldError, match=r"no hash of app that pip and uv accept \(sha256 or sha384 or sha512\), only md5") as caught:
        lock_of(replace(found, resolution=replace(found.resolution, pip=(replace(pin, file=weak),))))
    assert caught.value.code == "lock-no-hash"
    assert "index.example" in (caught.value.context or "")
