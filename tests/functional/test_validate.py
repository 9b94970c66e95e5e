"""`validate` on the command line, with a driver and a cuDNN that are compiled here: right, wrong in every way, or dead."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from packaging.pylock import PackageWheel
from packaging.specifiers import SpecifierSet

import cudnn_resolve
from cudnn_resolve.cli.main import main
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.locking.model import LockedRequest, Stack, Tool
from cudnn_resolve.locking.read_pylock import read
from cudnn_resolve.locking.write_pylock import write
from cudnn_resolve.validation.case import CLASSES as CLASSES_OF_CASES
from cudnn_resolve.validation.children import ChildRunner
from cudnn_resolve.validation.judge_numbers import judge_cases
from cudnn_resolve.validation.judge_speed import judge_card
from cudnn_resolve.validation.model import Check, VisibleGpu
from tests.functional.interpreters import interpreter, interpreters, make_environment
from tests.lock_maker import entry, lock_with
from tests.native.convolution import GPU, computing_cudnn, working_libcuda, working_nvml
from tests.native.cudnn import RUNPATH, build_cudnn, build_part
from tests.native.template import compile_library

pytestmark = pytest.mark.slow

THIS = f"{sys.version_info[0]}.{sys.version_info[1]}"
CLASSES = ("conv1d", "conv2d", "conv3d", "conv2d-grouped", "conv2d-depthwise", "conv2d-strided", "conv2d-dilated", "conv2d-wide")
MISSING = "{}: cannot open shared object file: No such file or directory"

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment without packages."""
    path = tmp_path_factory.mktemp("validate") / "venv"
    make_environment(THIS, path)
    return path


@pytest.fixture
def command(venv: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `validate` on that environment."""

    def run(*words: str, **env: str) -> tuple[int, str, str]:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        code = main(["validate", "--python", str(venv), *words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def stack(tmp_path: Path) -> str:
    """A directory for LD_LIBRARY_PATH with a driver and a cuDNN 7, which is one library."""
    computing_cudnn(tmp_path / "lib", 7605)
    return str(working_libcuda(tmp_path / "lib").parent)


def checks_of(text: str) -> dict[str, dict[str, Any]]:
    return {check["id"]: check for check in json.loads(text)["checks"]}


def test_nothing_to_test_is_skipped(command: Command) -> None:
    code, out, _ = command()

    assert code == 0
    assert "skipped  gpu: no NVIDIA driver" in out
    assert "none is installed in" in out
    assert out.endswith("skipped: nothing was computed on a GPU (2 skipped)\n")


def test_a_gpu_can_be_required(command: Command) -> None:
    code, out, _ = command("--require-gpu", "--format", "json")

    assert code == 1
    assert json.loads(out)["status"] == "failed"
    assert checks_of(out)["gpu"]["status"] == "failed"


def test_a_hidden_gpu_is_no_gpu(command: Command, stack: str) -> None:
    code, out, _ = command("--require-gpu", LD_LIBRARY_PATH=stack, STANDIN_GPUS=GPU, CUDA_VISIBLE_DEVICES="")

    assert code == 1
    assert "CUDA_VISIBLE_DEVICES=''" in out


def test_a_whole_stack_passes(command: Command, stack: str) -> None:
    code, out, _ = command("--format", "json", LD_LIBRARY_PATH=stack, STANDIN_GPUS=GPU)

    told = json.loads(out)
    assert code == 0
    assert told["schema"] == "cudnn-resolve/validate/1"
    assert told["status"] == "passed"
    assert told["gpus"] == [{"index": 0, "name": "Tesla T4", "uuid": GPU.rpartition("|")[2], "compute_capability": "7.5"}]
    assert told["loaded"]["cudnn"] == "7.6.5"
    checks = checks_of(out)
    assert checks["card"]["status"] == "passed"
    for name in CLASSES:
        check = checks[f"cudnn/libcudnn.so.7/{name}/float32/nchw"]
        assert (check["status"], check["gpu"], check["framework"]) == ("passed", 0, None)
        assert check["seconds"] > 0
    assert checks["cudnn/libcudnn.so.7/conv2d/float16/nhwc"]["status"] == "passed"
    assert set(checks["card"]) >= {"id", "framework", "status", "expected", "observed", "detail", "seconds"}


def test_the_table_shows_cases_that_passed_together(command: Command, stack: str) -> None:
    code, out, _ = command(LD_LIBRARY_PATH=stack, STANDIN_GPUS=GPU)

    assert code == 0
    assert out.startswith("GPU 0: Tesla T4, compute capability 7.5")
    assert "ok       cudnn/libcudnn.so.7: 11 cases" in out
    wide = [line for line in out.splitlines() if len(line) > 100]
    assert all(len(line.split()) == 1 for line in wide), "only a word that cannot be broken, such as a long path, is wider"
    assert command("-v")[1].count("ok       cudnn/libcudnn.so.7/conv") == 11


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("off-by-one", "wrong numbers"),
        ("transposed", "wrong numbers"),
        ("nan", "is nan instead of"),
        ("ulp", "wrong numbers"),
        ("no-gradient", "wrong numbers (gradient of the weights)"),
        ("tf32", "wrong numbers"),
        ("loose", "wrong numbers"),
        ("8", "cudnnConvolutionForward: CUDNN_STATUS_EXECUTION_FAILED (8)"),
        ("abort", "crashed (SIGABRT)"),
        ("segfault", "crashed (SIGSEGV)"),
    ],
)
def test_a_wrong_cudnn_is_told(stack: str, monkeypatch: pytest.MonkeyPatch, how: str, words: str) -> None:
    library = Path(stack) / "libcudnn.so.7"
    monkeypatch.setattr("cudnn_resolve.validation.children.bare_cases", lambda: CLASSES_OF_CASES[1:2])

    (check,) = bare(library, sys.executable, STANDIN_GPUS=GPU, STANDIN_CUDNN=how, STANDIN_OFF="0.001")

    assert (check.id, check.status) == ("conv2d/float32/nchw", "failed")
    assert words in (check.observed or "")


@pytest.mark.parametrize(("number", "status", "rest"), [(8907, "9", "skipped"), (90100, "3002", "skipped"), (90100, "3009", "failed")])
def test_what_cudnn_has_not_is_a_fault_of_plain_convolutions_only(tmp_path: Path, number: int, status: str, rest: str) -> None:
    library = computing_cudnn(tmp_path, number)
    working_libcuda(tmp_path)

    checks = {check.id: check for check in bare(library, sys.executable, STANDIN_GPUS=GPU, STANDIN_CUDNN=status, STANDIN_RANK="4")}

    assert checks["conv2d/float32/nchw"].status == "failed"
    assert f"({status})" in (checks["conv2d/float32/nchw"].observed or "")
    assert [checks[f"conv2d/{one}"].status for one in ("float16/nhwc", "float16/nchw", "float64/nchw")] == [rest] * 3
    assert checks["conv3d/float32/nchw"].status == "passed"


def test_a_cudnn_that_hangs_is_stopped(command: Command, stack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudnn_resolve.validation.children.CASES_SECONDS", 1.0)
    monkeypatch.setattr("cudnn_resolve.validation.children.MOST_RESTARTS", 0)

    code, out, _ = command("--format", "json", LD_LIBRARY_PATH=stack, STANDIN_GPUS=GPU, STANDIN_CUDNN="hang")

    assert code == 1
    assert checks_of(out)["cudnn/libcudnn.so.7/conv1d/float32/nchw"]["observed"] == "did not end within 1 s and was stopped"


def test_the_cases_behind_one_that_crashes_are_still_tried(command: Command, stack: str) -> None:
    code, out, _ = command("--format", "json", LD_LIBRARY_PATH=stack, STANDIN_GPUS=GPU, STANDIN_CUDNN="segfault", STANDIN_RANK="5")

    checks = {name: check["status"] for name, check in checks_of(out).items() if name.startswith("cudnn/libcudnn.so.7/conv")}
    assert code == 1
    assert [name for name, status in checks.items() if status != "passed"] == ["cudnn/libcudnn.so.7/conv3d/float32/nchw"]
    assert len(checks) == 11


def test_a_cudnn_that_gives_no_handle(command: Command, stack: str) -> None:
    code, out, _ = command(LD_LIBRARY_PATH=stack, STANDIN_GPUS=GPU, STANDIN_CREATE="1")

    assert code == 1
    assert "cudnnCreate: CUDNN_STATUS_NOT_INITIALIZED (1)" in " ".join(out.split())


def test_a_card_without_memory_is_told_before_anything_else(command: Command, stack: str) -> None:
    code, out, _ = command("--format", "json", LD_LIBRARY_PATH=stack, STANDIN_GPUS=GPU, STANDIN_FREE="1000")

    assert code == 1
    assert "CUDA_ERROR_OUT_OF_MEMORY" in checks_of(out)["card"]["observed"]
    assert not any("conv" in name for name in checks_of(out))


def test_two_cards_work_and_one_can_be_chosen(command: Command, stack: str) -> None:
    two = f"{GPU};NVIDIA L4|8.9|23034|GPU-00000000-0000-0000-0000-000000000002"
    _, out, _ = command("--format", "json", LD_LIBRARY_PATH=stack, STANDIN_GPUS=two)

    checks = checks_of(out)
    assert {check["gpu"] for check in checks.values()} == {None, 0, 1}
    assert checks["gpu1/cudnn/libcudnn.so.7/conv2d/float32/nchw"]["status"] == "passed"
    _, out, _ = command("--format", "json", "--gpu", "1")
    assert {check["gpu"] for check in checks_of(out).values()} == {None, 1}
    code, out, _ = command("--gpu", "2", "--require-gpu")
    assert code == 1
    assert "programs see 2, numbered from 0" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpu", "T4"], "--gpu 'T4' is not a number"),
        (["--gpu", "-1"], "--gpu"),
        (["--format", "xml"], "--format cannot be 'xml'"),
        (["--require-gpus"], "did you mean --require-gpu?"),
        (["--record", "/nowhere/pylock.toml"], "/nowhere/pylock.toml"),
    ],
)
def test_a_wrong_command_line(command: Command, words: list[str], message: str) -> None:
    code, out, err = command(*words)

    assert (code, out) == (2, "")
    assert message in err


def test_an_interpreter_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--python", str(tmp_path)]) == 2
    assert "has no Python interpreter" in capsys.readouterr().err


def test_junit_can_be_read(command: Command, stack: str) -> None:
    code, out, _ = command("--format", "junit", LD_LIBRARY_PATH=stack, STANDIN_GPUS=GPU, STANDIN_CUDNN="nan", STANDIN_RANK="5")

    suite = ET.fromstring(out).find("testsuite")  # noqa: S314 - our own
    assert code == 1
    assert suite is not None
    failures = suite.findall("testcase/failure")
    assert suite.get("failures") == "1" == str(len(failures))
    assert "is nan instead of" in failures[0].get("message", "")
    assert suite.get("tests") == str(len(suite.findall("testcase")))


@pytest.mark.parametrize("chain", [False, True], ids=["needed", "needed by what is needed"])
def test_what_only_the_driver_brings_is_skipped_without_one(command: Command, tmp_path: Path, *, chain: bool) -> None:
    """As in cuDNN 9.28, whose engines that compile at run time need libcuda.so.1."""
    folder = build_cudnn(tmp_path / "lib", "9.28.0.42")
    away = working_libcuda(tmp_path / "away")
    extra = compile_library("template.c", folder / "libextra.so.3", "libextra.so.3", "-Wl,--no-as-needed", *([str(away)] if chain else []))
    needs = ("-Wl,--no-as-needed", *([] if chain else [str(away)]), str(extra), RUNPATH)
    compile_library("template.c", folder / "libcudnn_engines_runtime_compiled.so.9", "libcudnn_engines_runtime_compiled.so.9", *needs)

    def parts() -> dict[str, tuple[str, str]]:
        checks = checks_of(command("--format", "json", LD_LIBRARY_PATH=str(folder))[1])
        return {name.rpartition("/")[2]: (one["status"], one["observed"]) for name, one in checks.items() if name.startswith("cudnn/")}

    told = parts()
    assert {name: status for name, (status, _) in told.items()} == {"load": "passed", "parts": "passed", "driver": "skipped"}
    assert told["driver"][1].startswith("no driver: libcudnn_engines_runtime_compiled.so.9 needs libcuda.so.1")
    assert command(LD_LIBRARY_PATH=str(folder))[0] == 0
    away.rename(folder / away.name)
    assert {name: status for name, (status, _) in parts().items()} == {"load": "passed", "parts": "passed"}
    (folder / away.name).unlink()
    extra.unlink()
    # That the driver is missing does not hide what else is.
    assert parts()["parts"] == ("failed", f"libcudnn_engines_runtime_compiled.so.9 cannot be opened: {MISSING.format('libextra.so.3')}")


@pytest.mark.parametrize("early", [[], ["-DEARLY"]])
def test_a_cudnn_8_that_ends_the_process_without_a_driver_is_whole(command: Command, tmp_path: Path, early: list[str]) -> None:
    folder = tmp_path / "lib"
    compile_library("standin_stale.c", folder / "libcudnn.so.8", "libcudnn.so.8", RUNPATH, *early)
    part = compile_library("standin_stale.c", folder / "libcudnn_cnn_infer.so.8", "libcudnn_cnn_infer.so.8", "-DPART")
    for name in ("adv_infer", "adv_train", "cnn_train", "ops_infer", "ops_train"):
        build_part(folder, name, "8.6.0.163")

    code, out, _ = command("--format", "json", LD_LIBRARY_PATH=str(folder))

    assert code == 0
    assert {name: one["status"] for name, one in checks_of(out).items() if "cudnn/" in name} == {
        "cudnn/libcudnn.so.8/load": "passed",
        "cudnn/libcudnn.so.8/parts": "passed",
    }
    part.write_bytes(b"")
    code, out, _ = command("--format", "json", LD_LIBRARY_PATH=str(folder))
    assert code == 1
    checks = checks_of(out)
    words = checks["cudnn/libcudnn.so.8/load"]["observed"] if early else checks["cudnn/libcudnn.so.8/parts"]["observed"]
    assert ("cudnnGetVersion(): crashed" if early else "libcudnn_cnn_infer.so.8 cannot be opened") in words


def test_output_goes_to_a_file(command: Command, tmp_path: Path) -> None:
    code, out, err = command("--format", "json", "-o", str(tmp_path / "out.json"))

    assert (code, out) == (0, "")
    assert json.loads((tmp_path / "out.json").read_text("utf-8"))["status"] == "skipped"
    assert "wrote" in err


def test_the_library_gives_the_same_object(command: Command, venv: Path) -> None:
    told = cudnn_resolve.validate(python=str(venv), require_gpu=True)

    assert told["status"] == "failed"
    assert told.to_json() == json.loads(command("--require-gpu", "--format", "json")[1])


@pytest.mark.parametrize("number", [7605, 8907, 90100])
@pytest.mark.parametrize("version", ["3.6", "3.8", "3.13", THIS])
def test_every_cudnn_in_every_python(tmp_path: Path, number: int, version: str) -> None:
    if number != 90100 and version != THIS:
        version = min(interpreters(), key=lambda text: tuple(map(int, text.split("."))))
    library = computing_cudnn(tmp_path, number)
    working_libcuda(tmp_path)

    checks = bare(library, interpreter(version), STANDIN_GPUS=GPU)

    assert len(checks) == 11
    assert [check.id for check in checks if check.status != "passed"] == []


def bare(library: Path, python: str, **env: str) -> list[Check]:
    host = LinuxHost(environ={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(library.parent), **env})
    bench = ChildRunner(host=host, python=python, progress=lambda _text: None)
    gpu = VisibleGpu(index=0, compute_capability="7.5")
    return list(judge_cases("", None, bench.bare(str(library), gpu), 0))


def test_cudnn_is_seen_at_work_in_its_own_log(tmp_path: Path) -> None:
    library = computing_cudnn(tmp_path, 90100)
    working_libcuda(tmp_path)
    host = LinuxHost(environ={"LD_LIBRARY_PATH": str(tmp_path), "STANDIN_GPUS": GPU})
    bench = ChildRunner(host=host, python=sys.executable, progress=lambda _text: None)

    ((_, told),) = bench.bare(str(library), VisibleGpu(index=0))

    answers = list(told.values("case", dict[str, Any]))
    work = {"cudnnConvolutionForward": 1, "cudnnConvolutionBackwardData": 1, "cudnnConvolutionBackwardFilter": 1}
    assert [answer["cudnn"] for answer in answers] == [work] * len(answers)
    assert all(answer["algorithms"] == {"y": 1, "dx": 1, "dw": 1} for answer in answers)


def test_a_wrong_gradient_is_not_hidden_by_a_right_result(tmp_path: Path) -> None:
    library = computing_cudnn(tmp_path, 8907)
    working_libcuda(tmp_path)

    for check in bare(library, sys.executable, STANDIN_GPUS=GPU, STANDIN_CUDNN="no-gradient"):
        assert check.status == "failed"
        assert (check.observed or "").startswith("wrong numbers (gradient of the weights)")


# --- locks ---

NONE = {"sha256": "0" * 64}


def write_lock(path: Path, *packages: tuple[str, str], cudnn: str | None = None) -> Path:
    """A lock of these packages."""
    locked = tuple(
        entry(
            name, version, wheels=[PackageWheel(name=f"{name}-{version}-py3-none-any.whl", hashes={"sha256": "0" * 64}, path=f"{name}.whl")]
        )
        for name, version in packages
    )
    stack_ = Stack(platform="linux_x86_64", cudnn=cudnn)
    tool = Tool(request=LockedRequest(targets=("torch",)), python=THIS, matrix=None, stacks=(stack_,))
    path.write_text(write(lock_with(*locked, tool=tool, requires_python=SpecifierSet(f"=={THIS}.*"))), "utf-8")
    return path


def test_what_passes_is_recorded_once_for_each_card(command: Command, stack: str, tmp_path: Path) -> None:
    lock = write_lock(tmp_path / "pylock.toml")
    before = lock.read_text("utf-8")

    code, _, err = command("--record", str(lock), LD_LIBRARY_PATH=stack, STANDIN_GPUS=GPU)
    command("--record", str(lock))

    assert code == 0
    assert f"recorded in {lock}: Tesla T4" in err
    read_again = read(lock.read_text("utf-8"))
    assert read_again.tool is not None
    (record,) = read_again.tool.validation
    assert (record["gpu"], record["compute_capability"]) == ("Tesla T4", "7.5")
    assert record["loaded"] == {"cudnn": "7.6.5"}
    assert "cudnn/libcudnn.so.7/conv2d-depthwise" in record["classes"]
    assert lock.read_text("utf-8").startswith(before.rstrip("\n").partition("[tool")[0])


@pytest.mark.parametrize("how", [{"STANDIN_CUDNN": "nan"}, {"STANDIN_GPUS": ""}], ids=["wrong", "without a card"])
def test_what_is_not_proven_is_not_recorded(command: Command, stack: str, tmp_path: Path, how: dict[str, str]) -> None:
    lock = write_lock(tmp_path / "pylock.toml")
    before = lock.read_bytes()

    _, _, err = command("--record", str(lock), **{"LD_LIBRARY_PATH": stack, "STANDIN_GPUS": GPU, **how})

    assert lock.read_bytes() == before
    assert f"{lock} is unchanged" in err


def test_an_environment_that_is_not_what_the_lock_says_fails(command: Command, tmp_path: Path) -> None:
    lock = write_lock(tmp_path / "pylock.toml", ("numpy", "2.0.2"), cudnn="9.1.0.70")

    code, out, _ = command("--lock", str(lock), "--format", "json")

    assert code == 1
    assert checks_of(out)["lock/packages"]["observed"] == "numpy 2.0.2 is not installed"


def test_a_plan_that_was_not_carried_out_fails(command: Command, stack: str, tmp_path: Path) -> None:
    plan = {"schema": "cudnn-resolve/plan/1", "status": "ok", "stack": {"cudnn": "8.9.7.29"}}
    (tmp_path / "plan.json").write_text(json.dumps({**plan, "pip": [{"name": "numpy", "version": "2.0.2", "action": "install"}]}), "utf-8")

    code, out, _ = command("--plan", str(tmp_path / "plan.json"), "--format", "json", LD_LIBRARY_PATH=stack, STANDIN_GPUS=GPU)

    checks = checks_of(out)
    assert code == 1
    assert checks["plan/packages"]["observed"] == "numpy 2.0.2 is not installed"
    assert "--plan cannot be combined with a lock" in command("--plan", "x", "--lock", "y")[2]
    assert command("--plan", str(tmp_path))[0] == 2


def test_two_locks_at_once_and_one_that_is_none(command: Command, tmp_path: Path) -> None:
    lock = write_lock(tmp_path / "pylock.toml")
    (tmp_path / "broken.toml").write_text("packages = 3\n", "utf-8")

    assert "--lock and --record name two locks" in command("--lock", str(lock), "--record", str(tmp_path / "x.toml"))[2]
    assert command("--lock", str(tmp_path / "broken.toml"))[0] == 2


@pytest.mark.parametrize(
    ("env", "status", "words"),
    [
        ({}, "passed", "it does, 3814 of 3814 MiB free"),
        ({"STANDIN_FREE": "1000000000"}, "warning", "953 of 953 MiB are free"),
        ({"STANDIN_CLOCKS": "crash"}, "warning", "it does; ask NVML: crashed (SIGSEGV)"),
        ({"STANDIN_LIBCUDA": "hang"}, "failed", "open the driver's library and make a context: did not end within 0.5 s and was stopped"),
    ],
)
def test_what_a_card_tells(stack: str, monkeypatch: pytest.MonkeyPatch, env: dict[str, str], status: str, words: str) -> None:
    """NVML can be done without: a card whose memory returns what was written is tested on."""
    working_nvml(Path(stack))
    monkeypatch.setattr("cudnn_resolve.validation.children.CARD_SECONDS", 0.5 if "STANDIN_LIBCUDA" in env else 30)
    host = LinuxHost(environ={"LD_LIBRARY_PATH": stack, "STANDIN_GPUS": GPU, "STANDIN_OTHERS": "3", "STANDIN_MODE": "3", **env})
    told = ChildRunner(host=host, python=sys.executable, progress=lambda _text: None).card(VisibleGpu(index=0))

    check = judge_card("card", told, 0)

    assert (check.status, check.observed) == (status, words)
    if not env:
        card = told.last("card", dict[str, Any]) or {}
        assert {name: card[name] for name in ("others", "clock_mhz", "most_mhz", "multiprocessors", "mode")} == {
            "others": 3,
            "clock_mhz": 1500,
            "most_mhz": 1590,
            "multiprocessors": 40,
            "mode": 3,
        }
