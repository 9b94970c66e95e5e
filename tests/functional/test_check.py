"""`check` on files, as users run it: the verdict, its exit code, and every format."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.program import ROOT, Done, run
from tests.report_schemas import junit_faults, sarif_faults

LISTS = Path(__file__).parents[1] / "lists"
IMAGES = Path(__file__).parents[1] / "images"
T4 = ("--gpu", "T4", "--driver", "550.54.15", "--python-version", "3.11", "--os", "ubuntu22.04")


def check(*words: str, text: str = "") -> Done:
    return run("check", *words, text=text)


@pytest.mark.slow
def test_what_uv_makes_of_three_frameworks_breaks() -> None:
    done = check(str(LISTS / "requirements.txt"), *T4)
    assert done.returncode == 1
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["tensorflow", "2.18.0", "breaks"] in lines
    assert ["torch", "2.6.0", "runs"] in lines
    assert "needs cuDNN >= 9.3, < 10 for CUDA 12; there is nvidia-cudnn-cu12 9.1.0.70" in done.stdout
    line = (LISTS / "requirements.txt").read_text(encoding="utf-8").splitlines().index("nvidia-cudnn-cu12==9.1.0.70") + 1
    assert f"requirements.txt:{line}" in done.stdout
    assert "$ cudnn-resolve lock -f jax==0.5.2 -f tensorflow==2.18.0 -f torch==2.6.0" in done.stdout


def test_what_is_not_known_is_no_yes() -> None:
    done = check(str(LISTS / "uv.lock"), *T4)
    assert done.returncode == 0
    assert "runs\n" not in done.stdout
    assert "computes on the CPU unless the machine has CUDA" in done.stdout
    assert check(str(LISTS / "uv.lock"), *T4, "--strict").returncode == 1


def test_standard_input_and_several_files() -> None:
    done = check("-", str(LISTS / "uv.lock"), *T4, "--format", "json", text="torch==2.6.0+cu118\nnumpy==1.26.4\n")
    verdicts = json.loads(done.stdout)["verdicts"]
    assert [one["what"] for one in verdicts] == ["standard input (requirements file)", str(LISTS / "uv.lock")]
    assert [row["name"] for row in verdicts[0]["frameworks"]] == ["torch"]


@pytest.mark.slow
def test_every_format() -> None:
    words = (str(LISTS / "requirements.txt"), *T4, "--format")
    markdown = check(*words, "markdown").stdout
    assert "| tensorflow 2.18.0 | breaks |" in markdown
    github = [line for line in check(*words, "github").stdout.splitlines() if line.startswith("::error ")]
    assert len(github) == 1
    assert f"file={LISTS / 'requirements.txt'},line=" in github[0]
    sarif = json.loads(check(*words, "sarif").stdout)
    (run,) = sarif["runs"]
    errors = [one for one in run["results"] if one["level"] == "error"]
    assert errors[0]["locations"][0]["physicalLocation"]["region"]["startLine"] > 1
    assert {one["ruleId"] for one in run["results"]} == {one["id"] for one in run["tool"]["driver"]["rules"]}
    (suite,) = ET.fromstring(check(*words, "junit").stdout.encode()).iter("testsuite")  # noqa: S314 - our own
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verdict", "words", "text"),
    [
        ("failure", (str(LISTS / "requirements.txt"), *T4), ""),
        ("failure", ("-", *T4), "jax==0.7.2\njaxlib==0.7.1\nnumpy<1\nnumpy==2.1.0\n"),
        ("skipped", (str(LISTS / "uv.lock"), *T4), ""),
        ("testcase", ("--facts", str(IMAGES)), ""),
    ],
)
def test_reports_keep_the_schemas_of_their_formats(verdict: str, words: tuple[str, ...], text: str) -> None:
    sarif, junit = (check(*words, "--format", form, text=text).stdout for form in ("sarif", "junit"))
    assert (sarif_faults(sarif), junit_faults(junit)) == ([], [])
    assert f"<{verdict} " in junit


def test_what_is_no_report_is_told() -> None:
    assert sarif_faults('{"version": "2.1.0", "runs": [{"results": [{"level": "fatal"}]}]}')
    assert junit_faults('<testsuites name="x"><testsuite name="y" tests="1" time="soon">z<case/></testsuite></testsuites>') == [
        "/testsuites/testsuite has no failures",
        "/testsuites/testsuite has no errors",
        "/testsuites/testsuite has time='soon'",
        "/testsuites/testsuite has text",
        "/testsuites/testsuite has a child case",
    ]


@pytest.mark.parametrize("path", sorted(IMAGES.glob("colab-*.json")), ids=lambda path: path.stem)
def test_an_image_passes_with_what_it_carries(path: Path) -> None:
    done = check("--facts", str(path))
    assert done.returncode == 0, done.stdout
    assert "error:" not in done.stdout


def test_an_image_with_one_broken_thing(tmp_path: Path) -> None:
    facts = json.loads((IMAGES / "colab-2025-03-13.json").read_text(encoding="utf-8"))
    facts["packages"]["pip"]["nvidia-cudnn-cu12"] = "8.9.7.29"
    (tmp_path / "facts.json").write_text(json.dumps(facts), encoding="utf-8")
    done = check("--facts", str(tmp_path / "facts.json"))
    assert done.returncode == 1
    assert "torch 2.6.0+cu124 needs cuDNN >= 9.1, < 10 for CUDA 12; there is nvidia-cudnn-cu12 8.9.7.29" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gone.lock",), "gone.lock"),
        (("--python-version", "3.11"), "nothing to check"),
        (("-",), "pins no package"),
    ],
)
def test_bad_input(words: tuple[str, ...], said: str) -> None:
    done = check(*words, text="numpy\n")
    assert done.returncode == 2
    assert said in done.stderr


def wheel(name: str, version: str) -> str:
    stem = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    source = f'{{ url = "https://index.example/{stem}", hashes = {{ sha256 = "{"0" * 64}" }} }}'
    return f'[[packages]]\nname = "{name}"\nversion = "{version}"\nwheels = [{source}]\n'


@pytest.mark.slow
def test_a_foreign_lock_that_breaks_is_told_and_not_installed(tmp_path: Path) -> None:
    pins = (IMAGES.parent / "lists" / "requirements.txt").read_text(encoding="utf-8").split()
    lock = tmp_path / "pylock.toml"
    packages = "\n".join(wheel(*pin.split("==")) for pin in pins)
    lock.write_text(f'lock-version = "1.0"\ncreated-by = "another"\n{packages}', encoding="utf-8")
    planned = run("plan", str(lock), *T4, "--format", "json")
    warnings = [one["message"] for one in json.loads(planned.stdout)["warnings"] if one["code"] == "lock-breaks"]
    assert len(warnings) == 1
    assert "tensorflow 2.18.0 needs cuDNN >= 9.3" in warnings[0]
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    applied = run("apply", str(lock), "--yes", "--python", str(tmp_path / "venv"), "--gpu", "T4", "--driver", "550.54.15", "--no-validate")
    assert applied.returncode == 1
    assert "with this lock a framework will not run" in applied.stderr
    assert "--force" in applied.stderr
    tried = run("apply", str(lock), "--dry-run", "--python", str(tmp_path / "venv"), "--gpu", "T4", "--driver", "550.54.15")
    assert (tried.returncode, "error: with this lock a framework will not run" in tried.stderr) == (1, True)
    held = run("lock", "--check", "-o", str(lock), "--offline", *T4, "-f", "tensorflow==2.18.0", "--format", "json")
    assert held.returncode == 1
    first, *_ = json.loads(held.stdout)["differences"]
    assert (first["what"], first["locked"]) == ("verdict on tensorflow 2.18.0", "breaks")
    assert "there is nvidia-cudnn-cu12 9.1.0.70" in first["now"]


def test_a_plan_from_a_foreign_lock_says_what_check_says(tmp_path: Path) -> None:
    packages = "\n".join(wheel(*pin.split("==")) for pin in ("jax==0.7.2", "jaxlib==0.7.1", "jax-cuda12-plugin==0.7.2"))
    lock = tmp_path / "pylock.toml"
    lock.write_text(f'lock-version = "1.0"\ncreated-by = "another"\n{packages}', encoding="utf-8")
    said = json.loads(check(str(lock), *T4, "--format", "json").stdout)["verdicts"][0]["findings"]
    assert any("which ignores it" in one["summary"] for one in said if one["severity"] == "error")
    warned = json.loads(run("plan", str(lock), *T4, "--format", "json").stdout)["warnings"]
    for severity, code in (("error", "lock-breaks"), ("warning", "lock-doubt")):
        texts = [one["message"] for one in warned if one["code"] == code]
        assert [any(one["summary"] in text for text in texts) for one in said if one["severity"] == severity] == [True] * len(texts)


@pytest.mark.slow
def test_the_action_names_options_that_exist() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    script = text[text.index("words=(") :]
    assert (
        check(
            *["--format", "github", "--machine", "g5.xlarge", "--python-version", "3.11", "--strict", "--"], str(LISTS / "requirements.txt")
        ).returncode
        == 1
    )
    assert "check --format github" in script


@pytest.mark.slow
def test_the_script_of_the_action(tmp_path: Path) -> None:
    """The action's own lines, with an installed program in the place of the one that it would install."""
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    script = textwrap.dedent(text.partition("run: |\n")[2])
    bin_ = tmp_path / "cudnn-resolve" / "bin"
    bin_.mkdir(parents=True)
    for name, lines in {"pip": "exit 0", "cudnn-resolve": f'exec "{sys.executable}" -m cudnn_resolve "$@"'}.items():
        (bin_ / name).write_text(f"#!/bin/sh\n{lines}\n", encoding="utf-8")
        (bin_ / name).chmod(0o755)
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    (tmp_path / "python3").chmod(0o755)
    said = {
        "MACHINE": " ".join(T4),
        "STRICT": "false",
        "FILES": str(LISTS / "requirements.txt"),
        "RUNNER_TEMP": str(tmp_path),
        "SOURCE": ".",
    }
    environ = {**os.environ, **said, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-e", "-c", script], env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("::error file=")
    open_question = {**environ, "FILES": str(LISTS / "uv.lock")}
    for strict, code in (("false", 0), ("true", 1)):
        argv = ["bash", "-e", "-c", script]
        assert (
            subprocess.run(argv, env={**open_question, "STRICT": strict}, capture_output=True, timeout=120, check=False).returncode == code
        )


@pytest.mark.slow
def test_one_lock_on_several_machines(tmp_path: Path) -> None:
    done = check(str(LISTS / "requirements.txt"), "--facts", str(IMAGES))
    assert done.returncode == 1
    rows = [line.split() for line in done.stdout.partition("\n\n")[0].splitlines() if "colab-" in line]
    assert [row[-1] for row in rows] == ["breaks"] * len(list(IMAGES.glob("*.json")))
    assert check("--facts", str(IMAGES)).returncode == 0
    (tmp_path / "none").mkdir()
    assert "holds no facts" in check("--facts", str(tmp_path / "none")).stderr


@pytest.mark.parametrize("form", ["text", "json", "markdown", "sarif", "github", "junit"])
def test_a_file_whose_name_is_no_text(tmp_path: Path, form: str) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\x1b[31m\n::error::x.txt")
    Path(path).write_text("tensorflow==2.18.0\n")
    done = check(path, *T4, "--format", form)
    assert (done.returncode, done.stderr) == (0, "")
    assert not [line for line in done.stdout.splitlines() if line.startswith("::error")]
    assert "\x1b" not in done.stdout
    assert form != "sarif" or "%FF%1B%5B31m%0A%3A%3Aerror%3A%3Ax.txt" in done.stdout


def test_a_linker_that_the_list_does_not_name() -> None:
    text = (
        "torch==2.6.0\nfilelock==3.16.1\nnvidia-cublas-cu12==12.4.5.8\nnvidia-cusparse-cu12==12.3.1.170\nnvidia-cusolver-cu12==11.6.1.9\n"
    )
    done = check("-", *T4, text=text)
    assert "internal error" not in done.stderr
    assert "nvidia-nvjitlink-cu12" in done.stdout


def test_what_somebody_wants_is_not_what_is_missing() -> None:
    done = check("-", *T4, "--strict", text="torch==2.6.0\nnumpy==1.26.4\n")
    assert done.returncode == 0
    assert "what torch==2.6.0 brings is taken from the tables: 13 packages" in done.stdout
    assert "needs numpy<2" in check("-", *T4, text="torch==2.0.1\nnumpy==2.1.0\n").stdout


def test_gaps_are_no_yes() -> None:
    pins = [
        line for line in (LISTS / "requirements.txt").read_text(encoding="utf-8").splitlines() if not line.startswith(("tensorflow", "jax"))
    ]
    whole = "\n".join(pins) + "\n"
    assert check("-", *T4, "--strict", text=whole).returncode == 0
    for more in ("-e ./project\n", "-r gpu.txt\n", "sphinx>=2\n"):
        done = check("-", *T4, "--strict", text=whole + more)
        assert (done.returncode, "error:" in done.stdout) == (1, False), done.stdout
    assert check("-", "--machine", "p5.48xlarge", "--driver", "550.54.15", "--strict", text=whole).returncode == 1


@pytest.mark.slow
def test_a_lock_without_a_wheel_for_the_machine(tmp_path: Path) -> None:
    source = f'{{ url = "https://index.example/torch-2.6.0-cp313-cp313-macosx_11_0_arm64.whl", hashes = {{ sha256 = "{"0" * 64}" }} }}'
    lock = tmp_path / "pylock.toml"
    lock.write_text(
        f'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "torch"\nversion = "2.6.0"\nwheels = [{source}]\n', "utf-8"
    )
    done = check(str(lock), *T4)
    assert done.returncode == 1
    assert "torch 2.6.0 has no wheel for Python 3.11 on x86_64 in the lock" in done.stdout


def test_one_standard_input_for_several_machines() -> None:
    done = check("-", "--facts", str(IMAGES), text="torch==2.0.1\nnumpy==2.1.0\n")
    assert done.stdout.count("needs numpy<2; there is numpy 2.1.0") == len(list(IMAGES.glob("*.json")))
    assert "only once" in check("-", "--facts", "-", text="torch==2.6.0").stderr


@pytest.mark.slow
def test_machines_named_one_by_one(tmp_path: Path) -> None:
    (tmp_path / "smi.csv").write_text("NVIDIA H100 80GB HBM3, 470.82.01, 81559 MiB\n", encoding="utf-16")
    image, lock = str(IMAGES / "colab-2025-03-13.json"), str(LISTS / "requirements.txt")
    done = check(lock, "--facts", image, "--facts", str(tmp_path / "smi.csv"))
    rows = [line.split() for line in done.stdout.partition("\n\n")[0].splitlines()]
    assert [row[0] for row in rows[-2:]] == ["colab-2025-03-13.json:", "smi.csv:"]
    assert "need driver >= 525.60.13; here is driver 470.82.01" in " ".join(done.stdout.split())
    assert check("--facts", image, "--facts", str(tmp_path / "gone.json")).returncode == 2


CONDA = """channels: [pytorch]
dependencies: [python=3.10, pytorch=2.5.1, pytorch-cuda=12.4, numpy=1.26.4]
"""


@pytest.mark.slow
def test_an_environment_of_conda(tmp_path: Path) -> None:
    (tmp_path / "environment.yml").write_text(CONDA, "utf-8")
    done = check(str(tmp_path / "environment.yml"), "--gpu", "T4", "--driver", "550.54.15", "--strict")
    assert done.returncode == 0, done.stdout
    assert "Python 3.10" in " ".join(done.stdout.split())
    assert "needs driver" in check(str(tmp_path / "environment.yml"), "--gpu", "T4", "--driver", "470.57.02").stdout


def test_an_index_of_a_variant_and_the_files_that_a_file_names(tmp_path: Path) -> None:
    (tmp_path / "gpu.txt").write_text("torch==2.6.0\n", "utf-8")
    (tmp_path / "all.txt").write_text("-r gpu.txt\n--extra-index-url https://index.example/whl/cu118\nnumpy==1.26.4\n", "utf-8")
    done = check(str(tmp_path / "all.txt"), "--gpu", "T4", "--driver", "470.57.02", "--python-version", "3.11", "--os", "ubuntu22.04")
    assert "torch 2.6.0+cu118  runs" in done.stdout
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "all.txt").write_text("-r ../gpu.txt\nnumpy==1.26.4\n", "utf-8")
    said = " ".join(check(str(tmp_path / "inner" / "all.txt"), *T4).stdout.split())
    assert "not followed: -r ../gpu.txt (it is outside of the folder)" in said


def test_what_is_not_pinned_is_resolved_as_an_installer_would() -> None:
    done = check("-", *T4, text="torch==2.6.0\ntensorflow[and-cuda]==2.18.0\n")
    assert done.returncode == 1
    assert "pip and uv refuse to install it" in done.stdout
    said = " ".join(done.stdout.split())
    assert "torch==2.6.0 requires nvidia-cudnn-cu12==9.1.0.70, and tensorflow[and-cuda]==2.18.0 nvidia-cudnn-cu12==9.3.0.75" in said
    done = check("-", *T4, "--strict", text="torch>=2,<2.5\n")
    assert (done.returncode, "judged as the newest known version" in done.stdout) == (0, True)


def test_a_lock_for_another_python(tmp_path: Path) -> None:
    text = (LISTS / "uv.lock").read_text(encoding="utf-8").replace("requires-python =", "requires-python = '>=3.12' #", 1)
    (tmp_path / "uv.lock").write_text(text, "utf-8")
    done = check(str(tmp_path / "uv.lock"), *T4)
    assert done.returncode == 1
    assert "it is for Python >=3.12, and here is 3.11" in done.stdout


def test_the_difference_of_two_lists(tmp_path: Path) -> None:
    old, new = tmp_path / "old.txt", tmp_path / "new.txt"
    old.write_text("torch==2.6.0\nnumpy==1.26.4\n", "utf-8")
    new.write_text("torch==2.0.1\nnumpy==2.1.0\n", "utf-8")
    done = check("--diff", str(old), str(new), *T4)
    assert done.returncode == 1
    assert ["torch", "2.6.0:", "runs", "2.0.1:", "breaks"] in [line.split() for line in done.stdout.splitlines()]
    assert "changed: numpy 1.26.4 -> 2.1.0, torch 2.6.0 -> 2.0.1, " in done.stdout
    (change,) = json.loads(check("--diff", str(new), str(old), *T4, "--format", "json").stdout)["changes"]
    assert (change["before"], change["after"]) == ("breaks", "runs")
    assert [row["summary"] for row in change["gone"]] == ["torch 2.0.1 needs numpy<2; there is numpy 2.1.0"]
    assert not change["appeared"]
    assert "- new **error**: torch 2.0.1" in check("--diff", str(old), str(new), *T4, "--format", "markdown").stdout
    assert check("--diff", str(old), *T4).returncode == 2


def test_wheels_are_for_the_python_of_the_file(tmp_path: Path) -> None:
    python = "https://index.example/conda-forge/linux-64/python-3.13.1-h1_0.conda"
    wheel = "https://index.example/torch-2.6.0-cp313-cp313-manylinux1_x86_64.whl"
    chosen = f"version: 6\nenvironments:\n  default:\n    packages:\n      linux-64:\n      - conda: {python}\n      - pypi: {wheel}\n"
    lock = f"{chosen}packages:\n- conda: {python}\n- pypi: {wheel}\n  name: torch\n  version: 2.6.0\n"
    (tmp_path / "pixi.lock").write_text(lock, "utf-8")
    assert "has no wheel" not in check(str(tmp_path / "pixi.lock"), *T4).stdout


def test_constraints_count_for_frameworks(tmp_path: Path) -> None:
    (tmp_path / "limits.txt").write_text("torch<2.3\n", "utf-8")
    (tmp_path / "loose.txt").write_text("torch\n-c limits.txt\n", "utf-8")
    done = check(str(tmp_path / "loose.txt"), *T4)
    assert (done.returncode, "torch 2.2.2  runs" in done.stdout) == (0, True), done.stdout
    (tmp_path / "pinned.txt").write_text("torch==2.5.0\n-c limits.txt\n", "utf-8")
    done = check(str(tmp_path / "pinned.txt"), *T4)
    assert done.returncode == 1
    assert "pip and uv refuse to install it" in done.stdout
    assert "torch==2.5.0 is excluded by the constraint torch<2.3" in " ".join(done.stdout.split())


def test_an_image_whose_cudnn_is_too_old(tmp_path: Path) -> None:
    image = "FROM nvidia/cuda:12.4.1-cudnn-runtime-ubuntu22.04\n"
    (tmp_path / "Dockerfile").write_text(f"{image}RUN pip install tensorflow==2.18.0\n", "utf-8")
    done = check(str(tmp_path / "Dockerfile"), *T4)
    assert done.returncode == 1
    assert "there is cuDNN 9.1.0.70" in " ".join(done.stdout.split())
    (tmp_path / "Dockerfile").write_text(f"{image}RUN pip install tensorflow==2.18.0\nRUN wget https://example.org/cudnn.deb\n", "utf-8")
    assert check(str(tmp_path / "Dockerfile"), *T4).returncode == 0
    (tmp_path / "Dockerfile").write_text(f"{image}RUN pip install tensorflow[and-cuda]==2.18.0\n", "utf-8")
    assert check(str(tmp_path / "Dockerfile"), *T4).returncode == 0


def test_a_loose_requirement_on_an_index_of_a_variant() -> None:
    done = check("-", *T4, text="--index-url https://example.org/whl/cpu\ntorch>=2.6,<2.7\n")
    assert done.returncode == 1
    assert "torch 2.6.0+cpu computes on the CPU only" in done.stdout


@pytest.mark.parametrize(("asked", "shown"), [("torch==2.6.0", "torch 2.6.0"), ("torch>=2.6", "torch>=2.6")])
def test_an_index_of_an_unknown_variant_is_no_yes(asked: str, shown: str) -> None:
    done = check("-", *T4, "--strict", text=f"--index-url https://example.org/whl/cu199\n{asked}\n")
    assert done.returncode == 1
    assert f"{shown} on the index of cu199 is unknown" in " ".join(done.stdout.split())


def test_an_index_of_a_variant_says_nothing_of_a_framework_without_variants() -> None:
    done = check("-", *T4, text="--extra-index-url https://example.org/whl/cu118\ntensorflow[and-cuda]==2.18.0\n")
    assert "on the index of" not in done.stdout


def test_where_no_driver_is_known_the_one_that_is_needed_is_named(tmp_path: Path) -> None:
    from cudnn_resolve.operations.check import check
    from cudnn_resolve.operations.options import CheckRequest

    facts = json.loads((IMAGES / "colab-2025-03-13.json").read_text(encoding="utf-8"))
    del facts["driver"]
    (tmp_path / "image.json").write_text(json.dumps(facts), encoding="utf-8")
    (verdict,) = check(CheckRequest(facts=(str(tmp_path / "image.json"),))).verdicts

    assert verdict.status == "unknown"
    assert "whether the driver is new enough: its version is unknown, and 525.60.13 or newer is needed (--driver)" in verdict.not_judged


def test_pins_that_pip_check_would_complain_of_stand_apart_from_the_verdict(tmp_path: Path) -> None:
    facts = json.loads((IMAGES / "colab-2025-03-13.json").read_text(encoding="utf-8"))
    facts["packages"]["pip"] = {**facts["packages"]["pip"], "tensorstore": "0.1.71", "ml-dtypes": "0.2.0"}
    facts["packages"]["requires"] = {"tensorstore": ["ml_dtypes>=0.3.1", "numpy>=1.22.0", "absent>1; extra == 'more'", "gone>=2"]}
    (tmp_path / "image.json").write_text(json.dumps(facts), encoding="utf-8")
    words = ("--facts", str(tmp_path / "image.json"))
    before, done = check("--facts", str(IMAGES / "colab-2025-03-13.json")), check(*words)

    complaints = [
        "tensorstore 0.1.71 requires gone>=2; it is not installed",
        "tensorstore 0.1.71 requires ml_dtypes>=0.3.1; ml-dtypes 0.2.0 is installed",
    ]
    assert sorted(json.loads(check(*words, "--format", "json").stdout)["verdicts"][0]["complaints"]) == complaints
    assert all(f"  - {one}" in done.stdout for one in complaints)
    assert "Apart from the verdict, `pip check` would complain:" in check(*words, "--format", "markdown").stdout
    assert done.returncode == before.returncode
    assert "pip check" not in before.stdout


def test_what_is_not_known_says_what_of(tmp_path: Path) -> None:
    """`not known` alone under the name of an environment leaves the reader to guess what of it."""
    facts = json.loads((IMAGES / "colab-2025-03-13.json").read_text(encoding="utf-8"))
    del facts["driver"]
    (tmp_path / "image.json").write_text(json.dumps(facts), encoding="utf-8")

    lines = [line.strip() for line in check("--facts", str(tmp_path / "image.json")).stdout.splitlines()]
    assert "no problem was found in what was judged" in lines
    assert any(line.startswith("torch 2.6.0+cu124") and line.endswith("not known to run") for line in lines)
    warned = check(str(LISTS / "uv.lock"), *T4).stdout
    assert "no error was found in what was judged; see the warnings" in warned
    assert "  not known\n" not in warned


@pytest.mark.slow
@pytest.mark.parametrize(
    ("image", "more", "status", "said"),
    [
        ("python:3.11-slim", "--no-deps numpy==2.1.0", "breaks", "torch 2.6.0 needs nvidia-cudnn-cu12, "),
        ("python:3.11-slim", "tensorflow[and-cuda]==2.18.0", "breaks", "torch 2.6.0 needs nvidia-cusparselt-cu12, "),
        ("example/gpu:1", "tensorflow[and-cuda]==2.18.0", "not known to run", "the content of the image example/gpu:1 is unknown"),
    ],
)
def test_what_is_installed_alone_brings_nothing(tmp_path: Path, image: str, more: str, status: str, said: str) -> None:
    (tmp_path / "Dockerfile").write_text(f"FROM {image}\nRUN pip install --no-deps torch==2.6.0\nRUN pip install {more}\n")
    done = check(str(tmp_path / "Dockerfile"), *T4)
    assert ["torch", "2.6.0", *status.split()] in [line.split() for line in done.stdout.splitlines()]
    assert said in done.stdout
