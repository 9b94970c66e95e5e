"""`fleet VERB --from FOLDER` as users run it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import cudnn_resolve.api
from cudnn_resolve.cli.main import main
from cudnn_resolve.errors import WorldError
from cudnn_resolve.facts.model import Facts
from cudnn_resolve.fleet.model import ClassAnswer, FleetClass, Outcome
from cudnn_resolve.locking.read_pylock import read
from cudnn_resolve.operations.clean import clean
from cudnn_resolve.operations.fleet_bundles import in_use
from cudnn_resolve.operations.fleet_classes import FleetResult
from cudnn_resolve.operations.options import CleanRequest, FleetRequest
from tests.fleet_maker import CARDS, told, write
from tests.lock_project import TARGET, Project
from tests.program import Done, run

OLD_A100 = "pylock.a100sxm4-r550-py311.toml"


def fleet(verb: str, folder: Path, *words: str) -> Done:
    return run("fleet", verb, "--from", str(folder), *words)


def answer(verb: str, folder: Path, *words: str) -> dict[str, Any]:
    done = fleet(verb, folder, "--format", "json", *words)
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["schema"] == "cudnn-resolve/fleet/1"
    assert (found["status"] == "no") == (done.returncode == 1), done.stderr
    return found


def by_name(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in found["classes"]}


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    """Seven hosts of three classes."""
    hosts = {f"node{number:02d}": told(f"n{number}") for number in range(1, 5)}
    return write(tmp_path / "facts", **hosts, k1=told("k1", "K80", "470.82.01"), k2=told("k2", "K80", "470.82.01"), t1=told("t1", "T4"))


def test_detect_shows_the_classes(nodes: Path) -> None:
    done = fleet("detect", nodes)
    assert done.returncode == 0
    assert "node[01-04]" in done.stdout
    assert [len(one["hosts"]) for one in answer("detect", nodes)["classes"]] == [4, 2, 1]


def test_what_cannot_be_read_is_listed_and_stops_nobody(nodes: Path) -> None:
    (nodes / "bad.json").write_text('{"gpus": 7', "utf-8")
    (nodes / "deep.json").write_text('{"a":' * 100_000, "utf-8")
    (nodes / "twice.json").write_text(json.dumps(told("x"))[:-1] + ', "driver": null}', "utf-8")
    (nodes / "mac.json").write_text(json.dumps({**told("x"), "platform": {"system": "macos"}}), "utf-8")
    (nodes / "bin.json").write_bytes(b"\xff\xfe\x00\x01\x02")
    (nodes / "sub").mkdir()

    found = answer("detect", nodes)

    assert {one["host"] for one in found["faults"]} == {"bad", "deep", "twice", "mac", "bin", "sub"}
    assert "duplicate key" in next(one["why"] for one in found["faults"] if one["host"] == "twice")
    assert (found["hosts"], sum(len(one["hosts"]) for one in found["classes"])) == (13, 7)


def test_nothing_but_broken_files_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{", "utf-8")
    done = fleet("detect", tmp_path)
    assert (done.returncode, "a.json" in done.stderr) == (2, True)
    assert run("fleet", "plan", "torch").returncode == 2


def test_other_programs_outputs_and_nodes_of_kubernetes_are_hosts(tmp_path: Path) -> None:
    def node(name: str, product: str) -> dict[str, Any]:
        labels = {"nvidia.com/gpu.product": product, "nvidia.com/cuda.driver-version.full": "550.54.15"}
        return {
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {"name": name, "labels": labels},
            "status": {"nodeInfo": {"architecture": "amd64"}},
        }

    nodes = {
        "kind": "List",
        "apiVersion": "v1",
        "items": [node("n1", "Tesla-T4"), node("n2", "Tesla-T4"), {"kind": "Node", "apiVersion": "v1"}],
    }
    write(tmp_path / "facts", cluster=nodes)
    (tmp_path / "facts" / "login.txt").write_text("name, driver_version\nTesla T4, 550.90.07\n", "utf-8")

    found = answer("detect", tmp_path / "facts")

    assert {host for one in found["classes"] for host in one["hosts"]} == {"n1", "n2", "login"}
    assert [one["host"] for one in found["faults"]] == ["cluster-3"]


def test_the_labelled_output_of_srun_is_a_host_for_each_label(tmp_path: Path) -> None:
    lines = [f"{label}: {line}" for line in json.dumps(told("x"), indent=1).splitlines() for label in (" 0", "12")]
    lines += ["7: name, driver_version", "7: Tesla T4, 550.90.07", "8: {", "8: "]
    (tmp_path / "out.txt").write_text("\n".join(lines), "utf-8")
    (tmp_path / "pdsh.txt").write_text("".join(f"{name}: {json.dumps(told(name))}\n" for name in ("n1", "n2")), "utf-8")

    found = answer("detect", tmp_path)

    assert {host for one in found["classes"] for host in one["hosts"]} == {"task0", "task12", "task7", "n1", "n2"}
    assert [one["host"] for one in found["faults"]] == ["task8"]


def test_a_host_that_wrote_something_else_loses_no_other_of_the_same_file(tmp_path: Path) -> None:
    lines = ["n8: bash: line 1: cudnn-resolve: command not found", f"n1: {json.dumps(told('n1'))}", "srun: error: n8: task 3", "n9: "]
    (tmp_path / "out.txt").write_text("\n".join(lines), "utf-8")

    found = answer("detect", tmp_path)

    assert [one["hosts"] for one in found["classes"]] == [["n1"]]
    assert [(one["host"], one["why"]) for one in found["faults"]] == [
        ("n8", "no facts: bash: line 1: cudnn-resolve: command not found"),
        ("srun", "no facts: error: n8: task 3"),
        ("n9", "no facts: no output"),
    ]


def test_a_file_of_more_labels_than_there_are_hosts_is_one_fault(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(told("a")), "utf-8")
    (tmp_path / "log.txt").write_text("".join(f"{number}: x\n" for number in range(20_001)), "utf-8")
    assert [one["host"] for one in answer("detect", tmp_path)["faults"]] == ["log"]


@pytest.mark.slow
def test_what_has_become_of_each_class_is_a_line_in_a_pipe(nodes: Path) -> None:
    said = fleet("plan", nodes, "torch==2.7.0", "--offline").stderr.splitlines()
    assert {"a100sxm4-r550-py311: ok", "k80-r470-py311: no"} <= set(said)
    assert fleet("plan", nodes, "torch==2.7.0", "--offline", "-q").stderr == ""


@pytest.mark.slow
def test_what_is_said_of_an_index_is_said_once_for_all_classes(nodes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "http://index.example/simple")
    found = answer("plan", nodes, "torch==2.7.0", "--offline")
    (note,) = (one for one in found["notes"] if "index.example" in one)
    assert "http://index.example/simple, which is not https" in note
    assert "note: pip ignores" in fleet("plan", nodes, "torch==2.7.0", "--offline").stdout


def test_hosts_that_differ_in_names_alone_are_read_as_each_is(tmp_path: Path) -> None:
    facts = {**told("x", count=2), "packages": {"pip": {"uuid": "1.30", "note": "0.1", "torch": "2.7.0"}}}
    hosts = {f"h{number}": {**facts, "note": f"rack-{number}", "gpus": told(f"h{number}", count=2)["gpus"]} for number in range(1, 4)}
    hosts["h3"]["packages"] = {"pip": {**facts["packages"]["pip"], "uuid": "1.31", "note": "0.2"}}
    (one,) = cudnn_resolve.fleet_detect(from_folder=str(write(tmp_path / "facts", **hosts))).classes
    assert (one.group.hosts, one.group.facts.note) == (("h1", "h2", "h3"), "rack-1")
    assert {row.fact: dict(row.values) for row in one.group.spreads} == {
        "packages.pip.note": {"0.1": ("h1", "h2"), "0.2": ("h3",)},
        "packages.pip.uuid": {"1.30": ("h1", "h2"), "1.31": ("h3",)},
    }


@pytest.mark.parametrize("sign", ["driver", "cudnn"])
def test_doctor_finds_the_one_host_of_a_class_that_is_ill(tmp_path: Path, sign: str) -> None:
    def host(name: str, module: str, cudnn: str) -> dict[str, Any]:
        loads = {"cudnn": {"version": cudnn, "path": "/opt/x/libcudnn.so.9"}, "because": "LD_LIBRARY_PATH"}
        torch = {"name": "torch", "version": "2.7.0", "cuda_built": "12.6", "cudnn_built": "9.5.1", "would_load": loads}
        driver = {"version": "550.54.15", "kernel_module": module}
        return {**told(name, pip={"torch": "2.7.0"}), "driver": driver, "frameworks": [torch]}

    ill = host("n2", "550.40.07", "9.5.1") if sign == "driver" else host("n2", "550.54.15", "9.1.0")
    folder = write(tmp_path / "facts", n1=host("n1", "550.54.15", "9.5.1"), n2=ill)

    found = {one["hosts"][0]: one["status"] for one in answer("doctor", folder)["classes"]}

    assert found == {"n1": "ok", "n2": "no"}


def test_a_file_that_is_cut_off_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    folder = write(tmp_path / "facts", a=told("aa"), b=told("bb"))
    whole = (folder / "b.json").read_text()
    (folder / "b.json").write_text(whole[:-1] + " ")
    (folder / "c.json").write_text(whole.replace('"GPU-bb-0"', "GPU-bb-0--"))
    found = answer("detect", folder)
    assert [one["hosts"] for one in found["classes"]] == [["a"]]
    assert {one["host"] for one in found["faults"]} == {"b", "c"}


def test_a_cache_that_cannot_be_opened_is_kept_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with in_use():
        (next(tmp_path.rglob("fleet")) / "lock.toml").write_text("x")

    def refused(folder: str) -> None:
        raise WorldError(f"{folder} cannot be opened: Permission denied", code="permission")

    monkeypatch.setattr("cudnn_resolve.operations.clean.hold", refused)
    (kept,) = (one for one in clean(CleanRequest(all=True)).parts if one.what == "fleet")
    assert (kept.freed, Path(kept.path, "lock.toml").exists()) == (False, True)
    assert "cannot be opened" in kept.why


def test_files_of_a_fleet_are_not_freed_while_they_are_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with in_use(), in_use():
        file = next(tmp_path.rglob("fleet")) / "lock.toml"
        file.write_text("x")
        (kept,) = (one for one in clean(CleanRequest(all=True)).parts if one.what == "fleet")
        assert (kept.freed, kept.why, file.exists()) == (False, "in use by another command", True)
    clean(CleanRequest(all=True))
    assert not file.exists()


@pytest.mark.slow
def test_each_class_has_its_plan(nodes: Path) -> None:
    found = by_name(answer("plan", nodes, "torch==2.7.0", "--offline"))
    assert {name: one["status"] for name, one in found.items()} == {
        "a100sxm4-r550-py311": "ok",
        "t4-r550-py311": "ok",
        "k80-r470-py311": "no",
    }
    assert found["t4-r550-py311"]["plan"]["stack"]["frameworks"][0]["version"].startswith("2.7.0")
    assert found["k80-r470-py311"]["plan"]["conflict"]["relaxations"]
    text = fleet("plan", nodes, "torch==2.7.0", "--offline")
    assert text.returncode == 1
    assert "torch==2.7.0 cannot be satisfied" in " ".join(text.stdout.split())


@pytest.mark.slow
def test_a_page(nodes: Path) -> None:
    (nodes / "<b>.json").write_text("{", "utf-8")
    page = fleet("plan", nodes, "torch==2.7.0", "--offline", "--format", "html").stdout
    assert "chosen; torch 2.7.0 allows" in page
    assert "node[01-04]" in page
    assert "&lt;b&gt;" in page
    assert "<b>.json" not in page


def index(project: Project) -> list[str]:
    return ["--index-url", (project.folder / "empty").as_uri(), "--find-links", str(project.wheels)]


def test_a_lock_for_each_class_and_its_check(project: Project, nodes: Path) -> None:
    made = by_name(answer("lock", nodes, *TARGET, *index(project), "-o", "locks"))

    assert {name: one["lock"] for name, one in made.items()} == {name: f"locks/pylock.{name}.toml" for name in made if name[0] != "k"} | {
        "k80-r470-py311": None
    }
    lock = read((project.folder / "locks" / OLD_A100).read_text("utf-8"))
    assert lock.tool is not None
    assert lock.tool.python == "3.11"

    checked = by_name(answer("check", nodes, "locks"))
    assert checked["a100sxm4-r550-py311"]["lock"].endswith(OLD_A100)
    assert (checked["a100sxm4-r550-py311"]["status"], checked["k80-r470-py311"]["status"]) == ("ok", "no")
    assert checked["k80-r470-py311"]["message"].startswith("none of 2 locks fits these hosts")


def test_what_is_said_of_an_index_is_said_of_locks_too(project: Project, nodes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project.folder / "bad.conf").write_text("no section\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(project.folder / "bad.conf"))
    assert len(answer("lock", nodes, *TARGET, *index(project), "-o", "locks")["notes"]) == 1
    text = " ".join(fleet("lock", nodes, *TARGET, *index(project), "-o", "locks").stdout.split())
    assert text.count("bad.conf is not a pip configuration") == 1


def test_an_index_that_is_not_there_is_said_of_each_class(nodes: Path, tmp_path: Path) -> None:
    words = (*TARGET, "--index-url", "http://127.0.0.1:9/simple", "-o", str(tmp_path / "locks"), "--format", "json")
    done = fleet("lock", nodes, *words)
    told = json.loads(done.stdout)["classes"]
    assert (done.returncode, {one["status"] for one in told}) == (3, {"failed"}), done.stderr
    assert all("http://127.0.0.1:9/simple" in one["message"] and "\n" not in one["message"] for one in told)


def test_one_lock_is_judged_on_each_class(project: Project, nodes: Path) -> None:
    for name in ("k1", "k2"):
        (nodes / f"{name}.json").unlink()
    found = answer("lock", nodes, *TARGET, *index(project), "--one-lock")

    assert found["one_lock"]["path"] == "pylock.toml"
    assert all(one["verdicts"][0]["status"] == "runs" for one in found["classes"])
    for host in ("node01", "t1"):
        assert run("check", "pylock.toml", "--facts", str(nodes / f"{host}.json")).returncode == 0


@pytest.mark.slow
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(CARDS)), st.sampled_from(("470.82.01", "525.60.13", "550.54.15", "570.26"))),
        min_size=1,
        max_size=4,
    )
)
def test_one_lock_breaks_no_host_that_it_is_for(project: Project, tmp_path: Path, hosts: list[tuple[str, str]]) -> None:
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    write(folder, **{f"n{number}": told(f"n{number}", card, driver) for number, (card, driver) in enumerate(hosts)})
    found = answer("lock", folder, *TARGET, *index(project), "--one-lock", "-o", str(folder / "pylock.toml"))
    stopped = [one["name"] for one in found["classes"] if one["status"] == "no"]
    assert (found["one_lock"]["path"] is None) == bool(stopped), found["one_lock"]


@pytest.mark.parametrize(("verb", "code"), [("validate", 1), ("apply", 4), ("undo", 4)])
def test_hosts_that_fail_decide_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str, code: int
) -> None:
    group = FleetClass(name="a100", hosts=("n1",), about={}, facts=Facts())
    failed = ClassAnswer(group=group, status="failed", outcomes=(Outcome(host="n1", status="failed"),))
    monkeypatch.setattr(cudnn_resolve.api, "fleet", lambda *_: FleetResult(verb=verb, classes=(failed,)))
    assert main(["fleet", verb, "-i", "hosts", "--env", "/opt/dl"]) == code
    assert "n1: failed" in capsys.readouterr().out


@pytest.mark.slow
def test_many_classes_are_planned_in_processes_as_in_one(nodes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = FleetRequest(verb="plan", from_folder=(str(nodes),), framework=("torch==2.7.0",), offline=True)
    one = cudnn_resolve.api.fleet(request).to_json()
    monkeypatch.setattr("cudnn_resolve.operations.fleet_classes._PARALLEL_CLASSES", 1)
    assert cudnn_resolve.api.fleet(request).to_json() == one
    nowhere = replace(request, offline=False, index_url="http://127.0.0.1:1/simple")
    told = cudnn_resolve.api.fleet(nowhere).to_json()["classes"]
    assert {one["status"] for one in told} == {"failed"}
    assert all("127.0.0.1:1" in one["message"] for one in told)


@pytest.mark.slow
def test_why_there_is_not_one_lock(nodes: Path, tmp_path: Path) -> None:
    write(nodes, b1=told("b1", "B200", "570.86.15"))
    found = answer("lock", nodes, "torch==2.7.0", "--offline", "--one-lock", "-o", str(tmp_path / "pylock.toml"))

    ways = {one["change"]: one for one in found["one_lock"]["ways"]}
    fewest = next(one for change, one in ways.items() if change.startswith("without the 3 hosts of"))
    assert fewest["hosts"] == ["b1", "k1", "k2"]
    assert fewest["result"].startswith("torch 2.7.0")
    assert not (tmp_path / "pylock.toml").exists()

    for name in ("k1", "k2"):
        (nodes / f"{name}.json").unlink()
    found = answer("lock", nodes, "torch==2.7.0", "--offline", "--one-lock", "-o", str(tmp_path / "pylock.toml"))
    changes = [one["change"] for one in found["one_lock"]["ways"]]
    assert changes[0] == "without the host of b200-r570-py311 (b1)"
    assert any(one.startswith("with driver 570.26 or newer on the 5 hosts of") for one in changes)


def test_hosts_of_two_pythons_have_no_common_lock(nodes: Path, tmp_path: Path) -> None:
    write(nodes, p1=told("p1", python="3.12.4"), k1=told("k1"), k2=told("k2"))
    found = answer("lock", nodes, "torch==2.7.0", "--offline", "--one-lock", "-o", str(tmp_path / "pylock.toml"))
    assert "3.11 on" in found["one_lock"]["message"]
    assert "3.12 on p1" in found["one_lock"]["message"]
    changes = [one["change"] for one in found["one_lock"]["ways"]]
    assert changes[0].startswith("without the host of a100sxm4-r550-py312 (p1)")
    assert any(one.startswith("with an environment of Python 3.11 on the host of") for one in changes)


@pytest.mark.slow
def test_drift(project: Project, tmp_path: Path) -> None:
    project(*TARGET, "--python-version", "3.11", "--platform", "linux_x86_64", "--driver", "550.54.15", "--gpu", "A100")
    pins = {name: str(version) for name, version in project.pins.items()}
    folder = write(
        tmp_path / "facts", n1=told("n1", pip=pins), n2=told("n2", pip={**pins, "numpy": "2.0.0"}), n3=told("n3"), n4=told("n4", pip={})
    )
    before = fleet("detect", folder, "--format", "json")
    (tmp_path / "before.json").write_text(before.stdout, "utf-8")

    (found,) = answer("check", folder)["classes"]
    assert {one["host"]: one["detail"] for one in found["outcomes"]} == {
        "n2": "numpy 2.0.0 instead of 1.26.4",
        "n4": "no package of the lock is installed",
    }

    (folder / "n3.json").unlink()
    write(folder, n1=told("n1", driver="550.90.07", pip=pins), n5=told("n5", pip=pins))
    changed = answer("check", folder, "--since", str(tmp_path / "before.json"))["changes"]
    assert [(one["fact"], one["before"], one["now"], one["hosts"]) for one in changed] == [
        ("driver.version", "550.54.15", "550.90.07", ["n1"]),
        ("host", "none", "there", ["n5"]),
        ("host", "there", "none", ["n3"]),
    ]
    assert fleet("check", folder, "--since", str(tmp_path / "before.json"), "--strict").returncode == 1
    assert fleet("check", folder, "--since", str(folder / "n1.json")).returncode == 2
    assert fleet("check", folder, str(tmp_path / "facts")).returncode == 2


@pytest.mark.slow
def test_from_python(nodes: Path) -> None:
    found = cudnn_resolve.fleet_detect(from_folder=nodes)
    assert [len(one.group.hosts) for one in found.classes] == [4, 2, 1]
    assert cudnn_resolve.fleet_plan("torch==2.7.0", from_folder=nodes, offline=True)["status"] == "no"
