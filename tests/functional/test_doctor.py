"""`cudnn-resolve doctor` as a command: what it prints, and how it exits."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

import cudnn_resolve
from cudnn_resolve.cli.parser import Parser
from tests.functional.test_cli import is_explained
from tests.program import run

MACHINES = Path(__file__).parents[1] / "machines"
MISSING = "[rank0]: ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory\n"
T4 = {
    "schema": "cudnn-resolve/detect/1",
    "platform": {"system": "linux", "arch": "x86_64", "distribution": "ubuntu", "release": "22.04", "glibc": "2.35"},
    "python": {"version": "3.11.9", "path": "/srv/env/bin/python"},
    "driver": {"version": "535.161.07"},
    "gpus": [{"name": "Tesla T4", "compute_capability": "7.5"}],
    "cudnn": [],
    "packages": {"pip": {"torch": "2.6.0", "numpy": "2.1.3"}},
}


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "train.log"
    path.write_text(f"epoch 1\n{MISSING}", "utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(MISSING.encode()), "is compressed"),
        (Path(sys.executable).resolve().read_bytes()[:9000], "is not text"),
        (bytes(number * number % 251 for number in range(5000)), "is not text"),
    ],
    ids=["gzip", "program", "noise"],
)
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "log").write_bytes(content)
    done = run("doctor", str(tmp_path / "log"), "--no-facts")
    assert done.returncode == 2
    assert said in done.stderr
    assert "hint:" in done.stderr


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-16-be", "gb18030", "shift_jis"])
def test_text_of_other_encodings_is_read(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "log").write_bytes(
        f"開始 学習\n{MISSING}".encode(encoding) if encoding != "utf-16-le" else f"begun\n{MISSING}".encode(encoding)
    )
    assert "cudnn_missing" in run("doctor", str(tmp_path / "log"), "--no-facts").stdout


def test_a_log_gives_cause_evidence_and_remedy(log: str) -> None:
    done = run("doctor", log, "--no-facts")
    assert done.returncode == 1
    assert "cudnn_missing" in done.stdout
    assert "line 2" in done.stdout
    assert "$ cudnn-resolve doctor LOG" in done.stdout  # which framework it is, the log does not tell


def test_json_is_the_contract_and_what_the_library_gives(log: str) -> None:
    done = run("doctor", log, "--no-facts", "--format", "json")
    told = json.loads(done.stdout)
    assert cudnn_resolve.doctor(log, no_facts=True).to_json() == told
    assert told["schema"] == "cudnn-resolve/doctor/1"
    finding = told["findings"][0]
    assert {"cause", "severity", "summary", "evidence", "remedy", "confidence"} <= set(finding)
    assert finding["evidence"] == [{"source": "log", "line": 2, "text": MISSING.strip()}]
    assert all(set(one) == {"text", "command"} for one in finding["remedy"])


def test_standard_input_is_a_log() -> None:
    done = run("doctor", "-", "--no-facts", "--format", "json", text=MISSING)
    assert json.loads(done.stdout)["findings"][0]["cause"] == "cudnn_missing"


def test_facts_of_another_machine_decide(log: str, tmp_path: Path) -> None:
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps(T4 | {"cudnn": [{"version": "9.1.0.70", "soname": 9, "path": "/srv/env/cudnn", "source": "pip"}]}), "utf-8")
    done = run("doctor", log, "--facts", str(facts), "--format", "json")
    finding = json.loads(done.stdout)["findings"][0]
    assert finding["cause"] == "lib_not_on_path"
    assert "/srv/env/cudnn" in finding["summary"]


def test_facts_alone_are_judged(tmp_path: Path) -> None:
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps({**T4, "packages": {"pip": {"torch": "2.6.0", "nvidia-cudnn-cu12": "9.1.0.70"}}}), "utf-8")
    assert run("doctor", "--facts", str(facts)).returncode == 0
    facts.write_text(json.dumps(T4), "utf-8")
    assert "no copy of cuDNN is installed" in run("doctor", "--facts", str(facts)).stdout
    facts.write_text(json.dumps(T4 | {"driver": {"version": "470.57.02"}}), "utf-8")
    done = run("doctor", "--facts", str(facts))
    assert done.returncode == 1
    assert "driver_too_old" in done.stdout
    assert "470.57.02" in done.stdout


def test_harmless_lines_end_with_exit_code_0() -> None:
    noise = "W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning: Could not find TensorRT\n"
    done = run("doctor", "-", "--no-facts", text=noise)
    assert done.returncode == 0
    assert "harmless" in done.stdout
    assert run("doctor", "-", "--no-facts", text="epoch 1\n").stdout == "No problem was found in 1 line of the log.\n"


def test_a_warning_that_stands_alone_is_mentioned_and_beside_a_failure_it_is_the_cause(tmp_path: Path) -> None:
    warning = "A CUDA-enabled jaxlib is not installed. Falling back to cpu.\n"
    for text, code, severity in ((warning, 0, "info"), (f"{warning}Killed\n", 1, "error")):
        (tmp_path / "log").write_text(text, "utf-8")
        done = run("doctor", str(tmp_path / "log"), "--no-facts", "--format", "json")
        first = json.loads(done.stdout)["findings"][0]
        assert (done.returncode, first["cause"], first["severity"]) == (code, "cpu_only_build", severity)


def test_markdown_tells_strangers_nothing(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text(
        "token=hf_abcdefghijklmnopqrstuv OSError: /home/marie/v/lib/libcudnn.so.8: cannot open shared object file <b>|x|</b> ```\n", "utf-8"
    )
    text = run("doctor", str(path), "--no-facts", "--format", "markdown").stdout
    assert "hf_" not in text
    assert "marie" not in text
    assert "~/v/lib/libcudnn.so.8" in text
    assert "````text" in text


def test_a_log_may_be_anything(tmp_path: Path) -> None:
    path = tmp_path / "bytes.log"
    path.write_bytes(b"\x1b]0;evil\x07\xff\xfe\x00" * 300 + MISSING.encode() + b"\x1b[31m")
    done = run("doctor", str(path), "--no-facts")
    assert done.returncode in (0, 1)
    assert "\x1b" not in done.stdout


def test_what_cannot_be_is_explained(tmp_path: Path) -> None:
    assert is_explained(run("doctor", str(tmp_path / "none.log"), "--no-facts"), 2, "none.log")
    assert is_explained(run("doctor", str(tmp_path), "--no-facts"), 2, "is a directory")
    assert is_explained(run("doctor", "--no-facts"), 2, "--no-facts")


@pytest.mark.parametrize(
    ("words", "said"),
    [(["-", "--facts", "-"], "standard input"), (["-", "--no-facts", "--facts", "x.json"], "cannot be combined with --facts")],
)
def test_options_that_contradict_one_another_are_refused(words: list[str], said: str) -> None:
    from cudnn_resolve.cli import doctor
    from cudnn_resolve.errors import UsageError

    with pytest.raises(UsageError, match=said):
        doctor.run(parser().parse(words))


def test_fix_says_what_helps_where_apply_cannot(log: str) -> None:
    done = run("doctor", log, "--fix")
    assert done.returncode == 1
    assert "these commands help:" in done.stderr
    assert "pip list" in done.stderr or "nvidia-cudnn-cu" in done.stderr  # a toolkit here tells which CUDA the wheel is to be of
    assert is_explained(run("doctor", log, "--no-facts", "--fix"), 2, "--fix changes this machine")


def test_fix_hands_the_remedy_to_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    from argparse import Namespace

    from cudnn_resolve.cli import apply, doctor
    from cudnn_resolve.cli.arguments import Output
    from cudnn_resolve.diagnosis.model import Diagnosis, Finding, Remedy

    asked: list[Namespace] = []

    def take(args: Namespace) -> int:
        asked.append(args)
        return 4

    monkeypatch.setattr(apply, "run", take)
    remedies = (Remedy(text="look", command="nvidia-smi"), Remedy(text="move", command="cudnn-resolve apply -f 'torch==2.6.0' -f jax"))
    found = Diagnosis(findings=(Finding(cause="driver_too_old", severity="error", summary="old", remedy=remedies),))
    words = {"yes": True, "python": "/srv/env/bin/python", "device": "cpu", "find_links": ["/a b", "-c"], "offline": True, "cuda": None}
    assert doctor.fix(found, Namespace(**words), Output(), set()) == 4
    assert (asked[0].framework, asked[0].python, asked[0].yes) == (["torch==2.6.0", "jax"], "/srv/env/bin/python", True)
    assert (asked[0].device, asked[0].find_links, asked[0].offline, asked[0].cuda) == ("cpu", ["/a b", "-c"], True, None)
    assert doctor.fix(found, Namespace(yes=False, framework=["torch>=2.7"]), Output(), set()) == 4
    assert (asked[1].framework, asked[1].yes) == (["torch>=2.7"], False)
    assert doctor.fix_all(Diagnosis(), Namespace(yes=True), Output()) == 0


def test_a_package_that_is_laid_anew_keeps_its_version_and_the_rest(tmp_path: Path) -> None:
    told = json.loads((MACHINES / "torch-cuda13.json").read_text())
    installed = told["packages"]["pip"]
    for version, code in (("9.12.0.46", 0), (installed["nvidia-cudnn-cu13"], 1)):
        installed["nvidia-cudnn-cu13"] = version
        facts = tmp_path / "facts.json"
        facts.write_text(json.dumps(told))
        done = run("plan", f"--facts={facts}", "--offline", "--reinstall-package=nvidia-cudnn-cu13", "--format=json")
        pip = {one["name"]: one for one in json.loads(done.stdout)["pip"]}
        assert done.returncode == code, done.stderr
        assert {one["version"] for name, one in pip.items() if name == "nvidia-cudnn-cu13"} <= {version}
        assert all(one["version"] == installed.get(name, one["version"]) for name, one in pip.items())


def test_an_environment_of_the_system_is_not_laid_anew() -> None:
    done = run("plan", f"--facts={MACHINES / 'workstation.json'}", "--offline", "--reinstall-package=torch")
    assert done.returncode == 2
    assert "the system manages this environment" in done.stderr


def test_help_says_what_fix_does() -> None:
    assert "first finding" not in parser().format_help()


def parser() -> Parser:
    from cudnn_resolve.cli import doctor

    made = Parser(prog="cudnn-resolve doctor", description="")
    doctor.add_arguments(made)
    return made
