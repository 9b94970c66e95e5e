"""Wheels that are refused before anything changes: unknown, wrong, hostile, or more than there is room for."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.request import urlopen

import pytest
from msgspec.structs import replace

from cudnn_resolve.errors import InputError, WorldError
from cudnn_resolve.execution.journal_store import Journals
from cudnn_resolve.execution.recover import repair, undo
from cudnn_resolve.execution.run import carry_out
from cudnn_resolve.execution.task import Task, Work, check_task
from cudnn_resolve.execution.uv_staging import can_move, stage
from cudnn_resolve.host import disk
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.run_tool import Tooling
from cudnn_resolve.index.address import path_of
from cudnn_resolve.planning.model import PipAction
from cudnn_resolve.requirement.source import File
from tests.apply_world import ApplyWorld
from tests.index_server import IndexServer, Served
from tests.small_wheels import file_of, wheel_bytes, write_wheel

BOTH = pytest.mark.parametrize("installer", ["uv", "pip"])


def broken(task: Task, name: str, **changes: Any) -> Task:
    packages = [replace(one, file=replace(one.file, **changes)) if one.name == name and one.file else one for one in task.install]
    return replace(task, install=tuple(packages))


@pytest.mark.slow
@BOTH
def test_a_wrong_hash_changes_nothing(world: ApplyWorld, work: Work) -> None:
    former = world.former()

    with pytest.raises(WorldError) as refused:
        carry_out(broken(world.task(work.environment), "numpy", hashes={"sha256": "0" * 64}), work)

    assert refused.value.code == "hash-mismatch"
    assert world.former() == former


@pytest.mark.slow
@pytest.mark.parametrize("hashes", [{}, {"md5": "0" * 32}])
def test_a_file_without_a_hash_that_counts_is_refused_unless_the_user_says_otherwise(
    world: ApplyWorld, work: Work, hashes: dict[str, str]
) -> None:
    task = broken(world.task(work.environment), "numpy", hashes=hashes)

    with pytest.raises(WorldError, match=r"numpy==2\.0\.0"):
        carry_out(task, work)
    assert carry_out(task, replace(work, trusted=True)).status == "done"


@pytest.mark.slow
@pytest.mark.parametrize("installer", ["pip"])
def test_without_a_file_the_targets_pip_is_asked_where_the_user_says_so(
    world: ApplyWorld, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(world.wheels))
    asked = replace(work, trusted=True, host=LinuxHost())
    task = Task(targets=("numpy",), install=(PipAction(name="numpy", version="2.0.0"),))

    with pytest.raises(WorldError, match="no file with a hash is known"):
        carry_out(task, work)
    with pytest.raises(WorldError, match="does not pin more"):
        carry_out(replace(task, unpinned=("more",)), asked)
    assert carry_out(task, asked).status == "done"
    assert (world.site / "numpy-2.0.0.dist-info").is_dir()


@pytest.mark.slow
@BOTH
def test_a_source_archive_is_refused(work: Work) -> None:
    file = replace(file_of(Path(__file__)), filename="numpy-2.0.0.tar.gz")

    with pytest.raises(WorldError, match="only source archives exist for"):
        carry_out(Task(targets=(), install=(PipAction(name="numpy", version="2.0.0", file=file),)), work)


def test_an_index_that_vanishes_midway_changes_nothing(world: ApplyWorld, work: Work) -> None:
    former = world.former()

    with pytest.raises(WorldError):
        carry_out(broken(world.task(work.environment), "numpy", url="file:///nowhere/numpy.whl"), work)

    assert world.former() == former


def evil(world: ApplyWorld, folder: str, **more: object) -> Task:
    base = world.base / folder
    file = write_wheel(base, "evil", "1.0", **more)  # type: ignore[arg-type]
    return Task(targets=("evil",), install=(PipAction(name="evil", version="1.0", file=file),))


@BOTH
@pytest.mark.parametrize(
    "member",
    [
        "../../../../escaped.txt",
        "/tmp/escaped.txt",
        "evil/../../escaped.txt",
        "evil-1.0.data/scripts/../../x",
        "evil-1.0.data/evil/x",
        "a\\..\\b",
        "./x",
        "evil//x",
        "evil/" * 1200 + "x",
        "evil-1.0.data/scripts/python",
        "evil-1.0.data/data/bin/python3.11",
        "evil-1.0.data/data/pyvenv.cfg",
        ".cudnn-resolve-unfinished",
    ],
)
def test_a_wheel_that_would_write_elsewhere_is_refused(world: ApplyWorld, work: Work, member: str) -> None:
    former = world.former()

    with pytest.raises(WorldError) as refused:
        carry_out(evil(world, "evil", raw={member: b"x"}), work)

    assert refused.value.code == "wheel-bad"
    assert world.former() == former
    assert not list(world.state.glob("**/log.txt")), "the log of the tools that were run"


@BOTH
def test_a_link_in_a_wheel_is_refused(world: ApplyWorld, work: Work, tmp_path: Path) -> None:
    path = tmp_path / "evil-1.0-py3-none-any.whl"
    path.write_bytes(wheel_bytes("evil", "1.0", {"evil/__init__.py": ""}))
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("evil/way_out")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, str(tmp_path))
    former = world.former()

    with pytest.raises(WorldError, match="'evil/way_out' is a link"):
        carry_out(Task(targets=("evil",), install=(PipAction(name="evil", version="1.0", file=file_of(path)),)), work)

    assert world.former() == former


@pytest.mark.slow
@BOTH
def test_a_wheel_over_a_file_of_another_package_is_told_whatever_leads_there(world: ApplyWorld, work: Work) -> None:
    if not (world.venv / "lib64").is_symlink():
        (world.venv / "lib64").symlink_to("lib")
    former = world.former()
    place = f"evil-1.0.data/data/lib64/{world.site.relative_to(world.venv / 'lib')}/torch/__init__.py"

    done = carry_out(evil(world, "detour", files={place: "VERSION = 'evil'\n"}), work)

    assert done.status == "done", done
    assert [note for note in done.notes if "evil and torch both own a file" in note], done.notes
    assert (undo(work, None).status, world.former()) == ("undone", former)


@pytest.mark.slow
@BOTH
def test_a_wheel_over_a_file_of_nobody_is_told_and_undone(world: ApplyWorld, work: Work) -> None:
    former = world.former()
    files = {"torch/users_own.txt": "evil", "evil/__init__.py": "", "evil-1.0.data/data/bin/activate": "evil"}

    done = carry_out(evil(world, "over", files=files), work)

    assert [note for note in done.notes if "evil replaces 2 files of no installed package" in note], done.notes
    assert (undo(work, None).status, world.former()) == ("undone", former)


@BOTH
@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_wheel_whose_metadata_cannot_be_unpacked_is_refused(world: ApplyWorld, work: Work, method: int) -> None:
    former = world.former()
    path = world.base / f"damaged{method}" / "evil-1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w", method) as archive:
        for name in ("WHEEL", "METADATA"):
            archive.writestr(f"evil-1.0.dist-info/{name}", f"{name}: 1.0\n" * 200)
        places = [one.header_offset + 30 + len(one.filename) for one in archive.infolist()]
    content = bytearray(path.read_bytes())
    for place in places:
        content[place : place + 40] = b"\xff" * 40
    path.write_bytes(content)

    with pytest.raises(WorldError) as refused:
        carry_out(Task(targets=("evil",), install=(PipAction(name="evil", version="1.0", file=file_of(path)),)), work)

    assert (refused.value.code, world.former()) == ("wheel-bad", former)


@BOTH
@pytest.mark.parametrize(
    "text",
    ["[console_scripts]\n../../x = a:b", "[console_scripts]\npython3 = a:b", "[gui_scripts] # x\n/x: a:b", "[Console_Scripts]\n  ../x=a:b"],
)
def test_a_program_whose_name_is_a_path_is_refused_before_anything_runs(world: ApplyWorld, work: Work, text: str) -> None:
    with pytest.raises(WorldError, match=r"has an invalid file name|would replace the environment's own interpreter"):
        carry_out(evil(world, "scripts", raw={"evil-1.0.dist-info/entry_points.txt": text.encode()}), work)

    assert not list(world.state.glob("**/log.txt")), "the log of the tools that were run"


def served(index: IndexServer, *tasks: Task) -> Task:
    """The packages of the tasks, from an index on another machine."""
    packages = []
    for one in (one for task in tasks for one in task.install):
        assert one.file is not None
        there = index.add(one.name, Served(one.file.filename, Path(path_of(one.file.url)).read_bytes(), None))
        url = f"{index.root}/files/{one.name}/{one.file.filename}"
        packages.append(replace(one, file=replace(one.file, url=url, hashes={"sha256": there.digest})))
    return Task(targets=("evil",), install=tuple(packages))


@pytest.mark.parametrize("installer", ["uv"])
@pytest.mark.parametrize(
    ("member", "content"),
    [
        ("evil-1.0.data/scripts/python", b"#!/bin/sh"),
        ("evil-1.0.data/data/bin/python3.11", b"x"),
        ("evil-1.0.data/data/pyvenv.cfg", b"x"),
        (".cudnn-resolve-unfinished", b"x"),
        ("evil/" * 70 + "x", b"x"),
        ("evil-1.0.dist-info/entry_points.txt", b"[console_scripts]\n../../x = a:b"),
        ("evil-1.0.dist-info/entry_points.txt", b"[console_scripts]\npython3 = a:b"),
    ],
)
def test_what_uv_fetched_is_refused_where_it_may_not_lie_in_the_environment(
    world: ApplyWorld, work: Work, member: str, content: bytes
) -> None:
    former = world.former()
    with IndexServer() as index:
        task = served(index, evil(world, "evil", raw={member: content}))

        with pytest.raises(WorldError) as refused:
            carry_out(task, replace(work, members=unasked, online=True, download=fetched))

    assert refused.value.code in ("wheel-bad", "installer-failed")
    assert world.former() == former


@pytest.mark.slow
@pytest.mark.parametrize("installer", ["uv"])
@pytest.mark.parametrize("member", ["../../../../escaped.txt", "evil/../../escaped.txt"])
def test_a_wheel_of_which_uv_leaves_out_a_member_is_refused_each_time(world: ApplyWorld, work: Work, member: str) -> None:
    former = world.former()
    with IndexServer() as index:
        task = served(index, evil(world, "evil", raw={member: b"x"}))

        for _ in range(2):  # uv tells of it only as it unpacks the wheel into its cache
            with pytest.raises(WorldError, match="would lie outside of the environment") as refused:
                carry_out(task, replace(work, members=unasked, online=True, download=fetched))
            assert (refused.value.code, world.former()) == ("wheel-bad", former)

    assert not list(world.base.rglob("escaped.txt"))


@pytest.mark.parametrize("installer", ["uv"])
@pytest.mark.parametrize("failing", [1, 2])
def test_a_disk_that_fails_while_others_work_is_heard(world: ApplyWorld, work: Work, failing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    former, asked, real = world.former(), [0], disk.sync_file_systems

    def sync(paths: Iterable[str]) -> None:
        asked[0] += 1
        if asked[0] == failing:  # the kernel says it once, to whoever asks first
            raise WorldError("Input/output error", code="io")
        real(paths)

    monkeypatch.setattr(disk, "sync_file_systems", sync)
    done = carry_out(world.task(work.environment), work)

    assert (done.status, done.trouble and done.trouble.code, world.former()) == ("reverted", "io", former)


def fetched(file: File, folder: str, progress: object) -> str:
    """The path of a file, where uv gave up and it is fetched by ourselves."""
    del progress
    path = Path(folder, file.filename)
    path.write_bytes(urlopen(file.url).read())  # noqa: S310 - of our own server
    return str(path)


def unasked(file: File) -> None:
    raise AssertionError(f"{file.filename} is asked for what is in it")


@pytest.mark.parametrize("installer", ["uv"])
def test_files_at_one_place_are_told_of_what_uv_fetched(world: ApplyWorld, work: Work) -> None:
    former = world.former()
    files = {"torch/__init__.py": "VERSION = 'evil'\n", "torch/users_own.txt": "evil"}
    with IndexServer() as index:
        done = carry_out(served(index, evil(world, "first", files=files)), replace(work, members=unasked, online=True))

    assert done.status == "done", done
    said = "\n".join(done.notes)
    assert "evil and torch both own a file" in said
    assert "evil replaces a file of no installed package" in said
    assert (undo(work, None).status, world.former()) == ("undone", former)


@pytest.mark.parametrize("installer", ["uv"])
@pytest.mark.parametrize("version", ["uv 0.11.14", "uv x", ""])
def test_an_older_uv_fetches_only_what_was_asked_for_what_is_in_it(world: ApplyWorld, work: Work, tmp_path: Path, version: str) -> None:
    assert work.environment.uv is not None
    uv = tmp_path / "uv"
    uv.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}" || exec {work.environment.uv} "$@"\n')
    uv.chmod(0o755)
    old = replace(work, journals=Journals(replace(work.environment, uv=str(uv))), members=unasked, online=True)
    with IndexServer() as index, pytest.raises(AssertionError, match="is asked for"):
        carry_out(served(index, world.task(work.environment)), old)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("error: No space left on device (os error 28)", "disk-full"),
        ("error: strange wheel", "installer-failed"),
        ("error: unexpected argument '--prefix' found", None),
        ("error: Failed to fetch: `https://repo.example/x.whl`", None),
    ],
)
def test_what_uv_refuses_is_said_before_anything_changes(tmp_path: Path, work: Work, said: str, code: str | None) -> None:
    uv = tmp_path / "uv"
    uv.write_text('#!/bin/sh\necho "$SAID [$UV_NO_CACHE$UV_LINK_MODE]" >&2\nexit 2\n')
    uv.chmod(0o755)
    environment = replace(work.environment, uv=str(uv))
    tooling = Tooling(log=str(tmp_path / "log"), environ={"SAID": said, "UV_NO_CACHE": "1", "UV_LINK_MODE": "symlink"})

    if code is None:
        assert stage((), str(tmp_path), environment, tooling) is None
        return
    with pytest.raises(WorldError, match=r"o space left on device|strange wheel") as refused:
        stage((), str(tmp_path), environment, tooling)
    assert refused.value.code == code
    assert "[]" in (tmp_path / "log").read_text(), "what the user says to uv of caches and links"


@pytest.mark.parametrize("asked", [True, False])
def test_empty_folders_of_a_wheel_go_again(world: ApplyWorld, work: Work, *, asked: bool) -> None:
    file = write_wheel(world.base / "empty", "hollow", "1.0", raw={"hollow/deep/er/": b"", "beside/": b""})
    task = Task(targets=(), install=(PipAction(name="hollow", version="1.0", file=file),))

    assert carry_out(task, work if asked else replace(work, members=None)).status == "done"
    assert (world.site / "beside").is_dir()
    assert undo(work, None).status == "undone"
    assert not (world.site / "hollow").exists()
    assert not (world.site / "beside").exists()


def test_files_are_not_moved_where_folders_hand_on_their_group(world: ApplyWorld, work: Work) -> None:
    (world.state / "staging").mkdir(parents=True)
    assert can_move(str(world.state), work.environment)
    world.site.chmod(0o2775)
    assert not can_move(str(world.state), work.environment)


def test_what_a_killed_apply_had_laid_out_is_gone_after_a_repair(work: Work) -> None:
    journal = work.journals.open()
    journal.add("begin", schema=1, id=1, prefix=work.environment.prefix)
    staging = Path(journal.folder) / "staging"
    staging.mkdir()

    assert repair(work) is None
    assert not staging.exists()


def test_room_for_what_cannot_be_moved_is_looked_for_before_the_change(
    world: ApplyWorld, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    former = world.former()
    monkeypatch.setattr(disk, "can_rename", Mock(return_value=False))
    monkeypatch.setattr(disk, "free_bytes", Mock(return_value=(1 << 20) + 1000))

    with pytest.raises(WorldError, match=r"disk full: .* needed") as refused:
        carry_out(world.task(work.environment), work)

    assert refused.value.code == "disk-full"
    assert world.former() == former


@BOTH
def test_a_truncated_wheel_is_refused(world: ApplyWorld, work: Work) -> None:
    former = world.former()
    path = world.base / "cut" / "numpy-2.0.0-py3-none-any.whl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes((world.wheels / path.name).read_bytes()[:300])
    task = Task(targets=("numpy",), install=(PipAction(name="numpy", version="2.0.0", file=file_of(path)),))

    with pytest.raises(WorldError, match="cannot be installed"):
        carry_out(task, work)

    assert world.former() == former


@pytest.mark.parametrize(
    "piece",
    [
        PipAction(name="numpy; rm -rf /", version="1"),
        PipAction(name="--index-url=x", version="1"),
        PipAction(name="numpy", version="1 --pre"),
        PipAction(name="numpy", version="$(id)"),
        PipAction(name="../numpy", version="1"),
    ],
)
def test_names_and_versions_that_a_tool_could_read_as_something_else_are_refused(piece: PipAction) -> None:
    with pytest.raises(InputError):
        check_task(Task(targets=(), install=(piece,)))
