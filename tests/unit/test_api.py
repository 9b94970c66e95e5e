"""`import cudnn_resolve`: the words of the options in, typed results out."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import cudnn_resolve
from cudnn_resolve.cli.parser import Parser
from cudnn_resolve.errors import InputError, UsageError
from cudnn_resolve.facts.model import Facts, Gpu
from cudnn_resolve.operations import plan
from cudnn_resolve.operations.keywords import ApplyWords, LockWords, PlanWords, WhyWords, as_keywords
from cudnn_resolve.operations.options import Options, PlanRequest
from cudnn_resolve.operations.plan import PlanResult
from cudnn_resolve.operations.results import Result

NOTEBOOK = Path(__file__).parents[1] / "machines" / "notebook.json"


class SeenError(Exception):
    """Ends a plan before it begins."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Options]:
    """The options that a plan is asked with."""
    found: list[Options] = []

    def plan_targets(options: Options, listener: object) -> None:
        del listener
        found.append(options)
        raise SeenError

    monkeypatch.setattr(plan, "plan_targets", plan_targets)
    return found


def test_detect_gives_what_the_json_prints() -> None:
    found = cudnn_resolve.detect(facts=str(NOTEBOOK))

    assert found["schema"] == "cudnn-resolve/detect/1"
    assert found["packages"]["pip"]["numpy"] == "1.26.4"
    assert isinstance(found.packages.pip, Mapping)
    assert found.packages.pip["numpy"] == "1.26.4"
    assert cudnn_resolve.detect(facts=found) == found
    assert cudnn_resolve.detect(facts=found.to_json()) == found
    assert dict(found) == found.to_json()


def test_every_word_is_the_option_of_that_name(seen: list[Options]) -> None:
    words: dict[str, Any] = {
        "cuda": ">=12",
        "driver": "550.54.15",
        "python_version": "3.11",
        "platform": "linux_x86_64",
        "glibc": "2.35",
        "os": "ubuntu22.04",
        "prefer": "newest",
        "driver_policy": "strict",
        "strict_pins": True,
        "channel": "pip",
        "index_url": "-i",
        "offline": True,
    }
    lists: dict[str, Any] = {"gpu": ["T4", "sm_90"], "matrix": ["m"]}
    one: dict[str, Any] = {"requirement": "a.txt", "extra_index_url": "j", "find_links": "k"}

    with pytest.raises(SeenError):
        cudnn_resolve.plan(["torch>=2.4", "jax"], cudnn="9.3", **words, **lists, **one)

    in_tuples: dict[str, Any] = {name: tuple(value) for name, value in lists.items()} | {name: (value,) for name, value in one.items()}
    assert seen == [PlanRequest(framework=("torch>=2.4", "jax"), cudnn="==9.3.*", **words, **in_tuples)]


OUTPUT = {"help", "help_all", "format", "quiet", "verbose", "no_color"}
"""Options that say how a command line is answered."""


@pytest.mark.parametrize(
    ("verb", "words", "named", "of_the_command"),
    [
        ("plan", PlanWords, {"framework", "lock"}, {"output"}),
        ("lock", LockWords, {"framework", "output", "check"}, {"prefer"}),
        ("why", WhyWords, {"package", "framework"}, {"output", "allow_break"}),
        (
            "apply",
            ApplyWords,
            {"framework", "lock", "dry_run", "undo"},
            {"output", "yes", "resume", "history", "force", "facts", "machine", "platform", "glibc", "os"},
        ),
    ],
)
def test_the_keywords_are_the_options_of_the_command(verb: str, words: Any, named: set[str], of_the_command: set[str]) -> None:
    parser = Parser(prog=verb, description="")
    import_module(f"cudnn_resolve.cli.{verb}").add_arguments(parser)
    options = {name.replace("platforms", "platform") for name in vars(parser.parse(["x"] if verb == "why" else []))}

    assert set(words.__annotations__) | named == options - OUTPUT - of_the_command | ({"lock"} & named)


def test_a_keyword_of_no_option_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'facts'"):
        cudnn_resolve.apply("torch", facts="elsewhere.json")  # type: ignore[call-arg]


def test_nothing_said_is_the_defaults(seen: list[Options]) -> None:
    with pytest.raises(SeenError):
        cudnn_resolve.plan("torch", device="gpu")

    assert seen == [PlanRequest(framework=("torch",), device="gpu")]


@pytest.mark.parametrize("facts", [{"gpus": [{"name": "T4"}]}])
def test_facts_may_be_an_object(facts: Mapping[str, Any], seen: list[Options]) -> None:
    with pytest.raises(SeenError):
        cudnn_resolve.plan("torch", facts=facts)

    assert seen[0].facts is None
    assert seen[0].given == Facts(gpus=(Gpu(name="T4"),))


def test_what_is_wrong_is_said_of_the_argument(seen: list[Options]) -> None:
    with pytest.raises(InputError, match="gpus: expected a list"):
        cudnn_resolve.plan("torch", facts={"gpus": 1})
    with pytest.raises(UsageError, match="channel cannot be 'ftp': it is one of auto, pip, apt"):
        cudnn_resolve.plan("torch", channel="ftp")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="driver cannot be 550: expected a text, found int"):
        cudnn_resolve.plan("torch", driver=550)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="device cpu cannot be combined with gpu"):
        cudnn_resolve.plan("torch", device="cpu", gpu="T4")
    with pytest.raises(UsageError) as caught:
        cudnn_resolve.plan("torch", facts="f.json", python="python")
    assert caught.value.hint == "leave one of them out, or say python_version X.Y"
    assert seen == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cudnn_resolve.plan("torch", facts=5), "facts cannot be 5"),  # type: ignore[arg-type]
        (lambda: cudnn_resolve.detect(facts=[]), r"facts cannot be \[\]"),  # type: ignore[arg-type]
        (lambda: cudnn_resolve.plan(5), "framework cannot be 5: expected a text or a list of texts, found int"),  # type: ignore[arg-type]
        (lambda: cudnn_resolve.plan(["torch", 5]), "expected a text or a list of texts, found int"),  # type: ignore[list-item]
        (lambda: cudnn_resolve.plan("torch", python_version=3.11), "python_version cannot be 3.11: expected a text"),  # type: ignore[arg-type]
        (lambda: cudnn_resolve.plan("torch", offline="yes"), "offline cannot be 'yes': expected True or False"),  # type: ignore[arg-type]
        (lambda: cudnn_resolve.validate(gpu="0"), "gpu cannot be '0': expected a whole number"),  # type: ignore[arg-type]
        (lambda: cudnn_resolve.why(None), "package"),  # type: ignore[arg-type]
        (lambda: cudnn_resolve.apply(undo="abc"), "undo cannot be 'abc': expected True or a number of history()"),  # type: ignore[arg-type]
        (lambda: cudnn_resolve.apply(undo=0), "undo cannot be 0"),
        (lambda: cudnn_resolve.apply("torch", undo=True), "undo takes no framework"),
        (lambda: cudnn_resolve.apply(undo=3, lock="pylock.toml"), "undo takes no lock"),
        (lambda: cudnn_resolve.apply("torch", lock="pylock.toml"), "a lock cannot be combined with targets"),
        (lambda: cudnn_resolve.lock("torch", check=True, upgrade=True), "^check changes nothing, but upgrade asks for changes"),
        (lambda: cudnn_resolve.matrix_show("torhc"), "the matrix knows no framework 'torhc'"),
    ],
)
def test_a_wrong_argument_is_refused_by_its_name(call: Callable[[], object], message: str) -> None:
    with pytest.raises(cudnn_resolve.UsageError, match=message) as caught:
        call()
    assert "--" not in str(caught.value)


def test_hints_speak_of_arguments_and_leave_commands() -> None:
    with pytest.raises(cudnn_resolve.CudnnResolveError) as caught:
        cudnn_resolve.plan(python_version="3.11")

    assert caught.value.hint is not None
    assert caught.value.hint.startswith("name one: `framework='tensorflow==2.15'`; known: ")
    assert as_keywords("say --python-version X.Y, or `cudnn-resolve plan --driver 550`", {"python_version", "driver"}) == (
        "say python_version X.Y, or `cudnn-resolve plan --driver 550`"
    )
    assert as_keywords("leave --no-color out", {"python_version"}) == "leave --no-color out"


def test_paths_may_be_path_objects(tmp_path: Path, seen: list[Options]) -> None:
    (tmp_path / "r.txt").write_text("numpy\n")
    with pytest.raises(SeenError):
        cudnn_resolve.plan("torch", requirement=tmp_path / "r.txt", matrix=[tmp_path])

    assert seen == [PlanRequest(framework=("torch",), requirement=(f"{tmp_path}/r.txt",), matrix=(str(tmp_path),))]


def test_errors_and_results_are_offered_by_the_package() -> None:
    assert issubclass(cudnn_resolve.InputError, cudnn_resolve.CudnnResolveError)
    assert cudnn_resolve.PlanResult is PlanResult
    assert {"CudnnResolveError", "PlanResult", "plan", "matrix_show"} <= set(dir(cudnn_resolve))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = cudnn_resolve.nonsense


def test_every_result_is_documented_by_its_attributes() -> None:
    """What completion offers: annotated fields, each the value of one thing."""
    for name in cudnn_resolve.__all__:
        kind = getattr(cudnn_resolve, name)
        if isinstance(kind, type) and issubclass(kind, Result):
            assert getattr(kind, "__struct_fields__", ()), name
            assert get_type_hints(kind.to_json)["return"] == dict[str, Any], name


def test_the_tables_can_be_looked_up() -> None:
    listed, shown = cudnn_resolve.matrix_list(), cudnn_resolve.matrix_show("torch", "2.6.0")
    stack = cudnn_resolve.matrix_show("gpu", "T4")

    assert "torch" in [one.name for one in listed.frameworks]
    assert isinstance(shown, cudnn_resolve.MatrixFrameworkResult)
    assert {one.version for one in shown.builds} == {"2.6.0"}
    assert shown["builds"][0]["cuda_built"] == shown.builds[0].cuda_built
    assert isinstance(stack, cudnn_resolve.MatrixStackResult)
    assert stack.cards[0]["capability"] == "7.5"  # type: ignore[index]
    assert "<td>2.6.0</td>" in shown._repr_html_()
    assert "PyTorch" in listed._repr_html_()
    assert "Tesla T4" in stack._repr_html_()


def test_the_functions_stay_when_folders_of_their_name_are_imported() -> None:
    import cudnn_resolve.planning.model

    assert callable(cudnn_resolve.plan)
    assert "cudnn_resolve.planning.model" in sys.modules


def test_importing_the_package_imports_nothing_else() -> None:
    before = "import __future__, sys, types; before = set(sys.modules)"
    script = f"{before}; import cudnn_resolve; print(sorted(set(sys.modules) - before))"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "['cudnn_resolve', 'cudnn_resolve._version']\n"


def test_a_plan_has_attributes_prints_as_json_and_draws_itself() -> None:
    found = cudnn_resolve.plan("torch==2.6.0", driver="550.54.15", gpu="T4", python_version="3.11", offline=True)

    assert (found.status, found["status"], found.get("status"), "stack" in found) == ("ok", "ok", "ok", True)
    assert found.stack is not None
    assert found.stack.frameworks[0].version == found["stack"]["frameworks"][0]["version"]
    assert {one.name: one.version for one in found.pip}["nvidia-cudnn-cu12"] == "9.1.0.70"
    assert json.loads(json.dumps(found.to_json())) == found.to_json()
    assert found["schema"] == "cudnn-resolve/plan/1"
    assert "<td>nvidia-cudnn-cu12</td>" in found._repr_html_()


def test_why_gives_the_chain_behind_a_pin() -> None:
    found = cudnn_resolve.why("nvidia-cudnn-cu12", "torch==2.6.0", driver="550.54.15", gpu="T4", python_version="3.11", offline=True)

    assert found.chain is not None
    assert found.chain.chosen == found["chosen"] == "9.1.0.70"
    assert "torch" in found._repr_html_()


def test_every_kind_of_result_draws_itself_and_never_an_empty_cell() -> None:
    kinds = [getattr(cudnn_resolve, name) for name in cudnn_resolve.__all__ if name.endswith("Result")]
    past = cudnn_resolve.HistoryResult()
    shown = cudnn_resolve.matrix_show("torch", "2.6.0")._repr_html_()

    assert len(kinds) > 12
    assert all(callable(one._repr_html_) for one in kinds)
    assert "no apply has run in this environment" in past._repr_html_()
    assert '<th scope="col">variant</th>' in shown


@pytest.mark.slow
def test_a_notebook_shows_what_each_party_allows_of_what_would_be_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = tmp_path / "venv"
    venv.create(environment, symlinks=True, with_pip=False)
    monkeypatch.setattr("cudnn_resolve.operations.notebook_kernel.in_notebook", lambda: True)

    found = cudnn_resolve.apply("torch==2.6.0", python=str(environment), offline=True, dry_run=True)
    plain = cudnn_resolve.fleet_plan("torch==2.6.0", from_folder=str(NOTEBOOK), offline=True)

    assert found.status == "dry-run"
    assert plain.classes[0].ranges
    assert found.plan is not None
    assert "cuDNN" in [one.name for one in found.plan.ranges]
    assert "<svg" in found._repr_html_()


@pytest.mark.slow
def test_every_result_draws_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.log").write_text(
        "ImportError: <libcudnn>.so.9: libcudnn.so.9: cannot open shared object file: No such file or directory\n"
    )
    facts, findings = cudnn_resolve.detect(facts=str(NOTEBOOK)), cudnn_resolve.doctor("a.log", no_facts=True)

    assert "535.104.05" in facts._repr_html_()
    assert "cudnn_missing" in findings._repr_html_()
    assert "&lt;libcudnn&gt;" in findings._repr_html_()
    assert findings.findings[0].cause == "cudnn_missing"
