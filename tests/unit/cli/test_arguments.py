"""Words of the command line over settings over defaults, and what contradicts itself."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from cudnn_resolve.cli.arguments import Output, add_common_options, output_of, request_of
from cudnn_resolve.cli.main import verb
from cudnn_resolve.cli.parser import Parser, nearest
from cudnn_resolve.errors import ExitCode, UsageError
from cudnn_resolve.facts.assume import Assumptions
from cudnn_resolve.operations.options import FleetRequest, MatrixRequest, Options
from cudnn_resolve.operations.settings import with_settings


def parsed(*words: str) -> argparse.Namespace:
    parser = Parser(prog="cudnn-resolve plan", description="")
    add_common_options(parser, ("text", "json", "sh"), takes=("allow_break",))
    return parser.parse(words)


def options(*words: str, settings: dict[str, Any] | None = None) -> Options:
    args = parsed(*words)
    output_of(args)
    return with_settings(request_of(Options, args), settings)


def refused(*words: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        options(*words)
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.hint
    return caught.value


def test_nothing_said_is_the_defaults() -> None:
    assert options() == Options()


def test_everything_said() -> None:
    words = (
        "-f torch>=2.4 --framework jax -r a.txt --requirement b.txt --cuda >=12,<13 --cudnn 9.3 --facts F --driver 550.54.15 --gpu T4"
        " --gpu sm_90 --python-version 3.11 --platform linux_x86_64 --glibc 2.35 --os ubuntu22.04 --prefer newest --driver-policy strict"
        " --strict-pins --channel pip --index-url I --extra-index-url J --extra-index-url K --find-links L --offline --format json"
        " -o O -vv --no-color --matrix M --matrix N"
    )

    assert options(*words.split()) == Options(
        framework=("torch>=2.4", "jax"),
        requirement=("a.txt", "b.txt"),
        cuda=">=12,<13",
        cudnn="==9.3.*",
        facts="F",
        driver="550.54.15",
        gpu=("T4", "sm_90"),
        python_version="3.11",
        platform="linux_x86_64",
        glibc="2.35",
        os="ubuntu22.04",
        prefer="newest",
        driver_policy="strict",
        strict_pins=True,
        channel="pip",
        index_url="I",
        extra_index_url=("J", "K"),
        find_links=("L",),
        offline=True,
        matrix=("M", "N"),
    )
    assert output_of(parsed(*words.split())) == Output(format="json", output="O", verbose=2, color=False)
    assert options(*words.split()).assumptions == Assumptions(
        driver="550.54.15", gpus=("T4", "sm_90"), python_version="3.11", platform="linux_x86_64", glibc="2.35", os="ubuntu22.04"
    )


def test_settings_lie_below_the_command_line() -> None:
    settings = {
        "framework": ["torch"],
        "cuda": "12",
        "prefer": "newest",
        "driver-policy": "strict",
        "device": "cpu",
        "strict-pins": True,
        "channel": "apt",
        "index-url": "I",
        "offline": True,
        "project-matrix": ["/a"],
    }

    below = options(settings=settings)
    above = options("-f", "jax", "--prefer", "installed", "--channel", "auto", "--matrix", "b", settings=settings)

    assert (below.framework, below.cuda, below.prefer, below.driver_policy) == (("torch",), "==12.*", "newest", "strict")
    assert (below.device, below.strict_pins, below.channel, below.index_url, below.offline) == ("cpu", True, "apt", "I", True)
    assert (below.project_matrix, below.matrix) == (("/a",), ())
    assert (above.framework, above.prefer, above.channel) == (("jax",), "installed", "auto")
    assert (above.project_matrix, above.matrix) == (("/a",), ("b",))


@pytest.mark.parametrize(
    ("text", "specifier"), [("12.4", "==12.4.*"), ("12", "==12.*"), (" 9.3.0.75 ", "==9.3.0.75.*"), ("~=12.1", "~=12.1"), ("<12", "<12")]
)
def test_a_bare_version_means_its_line(text: str, specifier: str) -> None:
    assert options("--cuda", text).cuda == specifier


@pytest.mark.parametrize("text", ["", " ", "new", "12.x", ">=12 <13", "12.4.1-1", "\u0661\u0662"])
def test_a_limit_that_is_none_is_refused(text: str) -> None:
    assert "--cudnn" in refused("--cudnn", text).message


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--facts", "F", "--python", "P"], ["--facts", "--python"]),
        (["--python", "P", "--python-version", "3.11"], ["--python", "--python-version"]),
        (["--python", "P", "--platform", "linux_x86_64"], ["--python", "--platform"]),
        (["--device", "cpu", "--gpu", "T4"], ["--device cpu", "--gpu"]),
        (["--device", "cpu", "--cuda", "12"], ["--device cpu", "--cuda"]),
        (["-q", "-v"], ["-q", "-v"]),
    ],
)
def test_contradictions_name_both_sides(words: list[str], names: list[str]) -> None:
    error = refused(*words)

    assert error.code == "usage-contradiction"
    assert all(name in error.message for name in names)


def test_numbers_are_read_by_every_command() -> None:
    parser, _ = verb("fleet")
    assert request_of(FleetRequest, parser.parse(["apply", "--max-fail", "10"])).max_fail == 10
    parser, _ = verb("matrix")
    assert request_of(MatrixRequest, parser.parse(["check"])).sample == 40
    with pytest.raises(UsageError, match=r"--sample '4x' is not a number") as caught:
        request_of(MatrixRequest, parser.parse(["check", "--sample", "4x"]))
    assert caught.value.code == "option-sample"


@pytest.mark.parametrize("words", [["--facts", ""], ["--python", ""], ["-o", ""], ["--facts", "a\0b"]])
def test_an_empty_path_is_refused(words: list[str]) -> None:
    assert refused(*words).code == "usage-path"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--fromat", "json"], "--format"),
        (["--fact=F"], "--facts"),
        (["--drivr", "550"], "--driver"),
        (["--format", "jsn"], "json"),
        (["--prefer", "latest"], "--help"),
        (["--channel", "pipp"], "pip"),
        (["--zzz"], "--help"),
        (["--facts"], "--help"),
        (["-f"], "--help"),
    ],
)
def test_a_wrong_word_is_answered_with_the_nearest(words: list[str], hint: str) -> None:
    assert hint in (refused(*words).hint or "")


def test_options_are_not_abbreviated() -> None:
    assert "--strict" in refused("--strict").message


def test_nearest_folds_case_and_gives_the_written_form() -> None:
    assert nearest("TORHC", ["torch", "Keras"]) == ("torch",)
    assert nearest("kears", ["torch", "Keras"]) == ("Keras",)
    assert nearest("zzz", ["torch"]) == ()


def test_a_verb_need_not_have_every_option() -> None:
    parser = Parser(prog="x", description="")

    assert request_of(Options, parser.parse([])) == Options()


def test_frameworks_that_may_break_are_said_where_there_is_an_environment() -> None:
    assert options("--allow-break", "torch", "--allow-break", "jax").allow_break == ("torch", "jax")
    parser = Parser(prog="cudnn-resolve lock", description="")
    add_common_options(parser, platforms=True)
    with pytest.raises(UsageError):
        parser.parse(("--allow-break", "torch"))
