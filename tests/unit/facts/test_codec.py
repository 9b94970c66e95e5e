"""Facts files: what is written can be read, and what cannot be read is explained once and whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cudnn_resolve.errors import ExitCode, InputError
from cudnn_resolve.facts.codec import LIMIT_BYTES, SCHEMA, FactsError, FactsFile, decode, encode, from_mapping
from cudnn_resolve.facts.model import (
    UNKNOWN,
    CudnnCopy,
    Driver,
    Facts,
    Gpu,
    InstalledFramework,
    LoadedCudnn,
    Loader,
    Packages,
    Platform,
    Problem,
    Python,
    Toolkit,
    WouldLoad,
)

MACHINES = sorted((Path(__file__).parents[2] / "machines").glob("*.json"))


def faults_of(found: Any) -> list[str]:
    with pytest.raises(FactsError) as caught:
        decode(json.dumps(found))
    assert caught.value.code == "facts-invalid"
    assert caught.value.exit_code is ExitCode.USAGE
    return list(caught.value.faults)


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: path.stem)
def test_a_machine_is_read_and_written_without_loss(path: Path) -> None:
    text = path.read_text("utf-8")

    facts = decode(text)

    assert decode(json.dumps(encode(facts))) == facts
    written, stated = encode(facts), json.loads(text)
    plain = ("schema", "note", "platform", "python", "driver", "loader", "container", "root", "sources")
    assert {key: written[key] for key in plain if key in stated} == {key: stated[key] for key in plain if key in stated}
    assert {"schema", "platform", "python"} <= stated.keys()  # the driver is the machine's, and no image tells it


def test_there_are_machines() -> None:
    assert len(MACHINES) >= 2


def test_an_empty_object_knows_nothing() -> None:
    facts = decode("{}")

    assert facts == Facts()
    assert facts.driver is UNKNOWN
    assert facts.packages.pip is UNKNOWN
    assert encode(facts) == {"schema": SCHEMA, "platform": {}, "python": {}, "packages": {}, "sources": {}, "problems": []}


def test_absent_is_not_unknown() -> None:
    facts = decode('{"driver": null, "gpus": [], "cudnn": [], "packages": {"pip": {}}, "container": {"kind": null}}')

    assert facts.driver is None
    assert facts.gpus == ()
    assert facts.cudnn == ()
    assert facts.cuda_toolkits is UNKNOWN
    assert facts.packages.pip == {}
    assert facts.packages.apt is UNKNOWN
    assert facts.container is None
    assert encode(facts)["driver"] is None
    assert encode(facts)["gpus"] == []
    assert encode(facts)["container"] == {"kind": None}
    assert "cuda_toolkits" not in encode(facts)


def test_the_contract_is_written() -> None:
    facts = Facts(
        platform=Platform(system="linux", arch="x86_64", distribution="ubuntu", release="22.04", glibc="2.35"),
        python=Python(version="3.11.13", path="/usr/bin/python3", implementation="cpython", externally_managed=False),
        driver=Driver(version="550.54.15", cuda="12.4"),
        gpus=(Gpu(name="Tesla T4", compute_capability="7.5", memory_mib=15360),),
        cuda_toolkits=(Toolkit(version="12.5", source="apt"),),
        cudnn=(CudnnCopy(version="9.2.1.18", soname=9, cuda="12", path="/usr/lib", source="apt", complete=True),),
        frameworks=(
            InstalledFramework(
                name="torch",
                version="2.6.0",
                variant="cu124",
                cuda_built="12.4",
                cudnn_built="9.1.0",
                would_load=WouldLoad(cudnn=LoadedCudnn(version="9.2.1", path="/usr/lib/libcudnn.so.9"), because="cache"),
            ),
            InstalledFramework(name="jax", version="0.5.0", would_load=WouldLoad(because="nothing has it")),
        ),
        loader=Loader(ld_library_path=("/a",), ldconfig=("/b",)),
        packages=Packages(pip={"torch": "2.6.0"}, apt={"libc6": "2.35"}),
        container="docker",
        sources={"driver.version": "NVML"},
        problems=(Problem(what="nvidia-smi", why="is not there"),),
    )

    written = encode(facts)

    assert written["schema"] == "cudnn-resolve/detect/1"
    assert written["platform"] == {"system": "linux", "arch": "x86_64", "distribution": "ubuntu", "release": "22.04", "glibc": "2.35"}
    assert written["python"] == {
        "version": "3.11.13",
        "path": "/usr/bin/python3",
        "implementation": "cpython",
        "externally_managed": False,
    }
    assert written["driver"] == {"version": "550.54.15", "cuda": "12.4"}
    assert written["gpus"] == [{"name": "Tesla T4", "compute_capability": "7.5", "memory_mib": 15360, "uuid": None, "hidden": False}]
    assert written["cuda_toolkits"] == [{"version": "12.5", "path": None, "source": "apt"}]
    assert written["cudnn"][0] == {
        "version": "9.2.1.18",
        "soname": 9,
        "cuda": "12",
        "path": "/usr/lib",
        "source": "apt",
        "complete": True,
        "parts": None,
        "owner": None,
        "problems": [],
    }
    assert written["frameworks"][0] == {
        "name": "torch",
        "version": "2.6.0",
        "variant": "cu124",
        "cuda_built": "12.4",
        "cudnn_built": "9.1.0",
        "would_load": {"cudnn": {"version": "9.2.1", "path": "/usr/lib/libcudnn.so.9"}, "because": "cache"},
    }
    assert written["frameworks"][1]["would_load"] == {"cudnn": None, "because": "nothing has it"}
    assert written["loader"] == {"ld_library_path": ["/a"], "ldconfig": ["/b"]}
    assert written["packages"] == {"pip": {"torch": "2.6.0"}, "apt": {"libc6": "2.35"}}
    assert written["container"] == {"kind": "docker"}
    assert written["sources"] == {"driver.version": "NVML"}
    assert written["problems"] == [{"what": "nvidia-smi", "why": "is not there"}]
    assert decode(json.dumps(written)) == facts


def test_keys_of_a_newer_program_are_ignored() -> None:
    facts = decode(
        '{"schema": "cudnn-resolve/detect/1", "quantum": {"bits": NULL}, "gpus": [{"name": "T4", "fans": 2}]}'.replace("NULL", "1")
    )

    assert facts.gpus == (Gpu(name="T4"),)


def test_every_fault_is_named_at_once_with_its_path() -> None:
    faults = faults_of(
        {
            "platform": {"glibc": "new"},
            "python": {"version": "eleven", "externally_managed": "no"},
            "driver": {"version": 550},
            "gpus": None,
            "cudnn": [7, {"soname": "nine", "source": "ftp"}],
            "frameworks": [{"version": "1"}],
            "packages": {"pip": {"numpy": 3, "scipy": None}, "apt": []},
            "sources": {"driver": 1},
            "problems": [{"what": 1}],
            "root": 1,
        }
    )

    assert sorted(faults) == sorted(
        [
            "platform.glibc: 'new' is not a version made of numbers and dots",
            "python.version: 'eleven' is not a Python version such as 3.11 or 3.11.13",
            "python.externally_managed: expected true or false, found text",
            "driver.version: expected text, found number",
            "gpus: expected a list, found null (omit the key if it is unknown, write [] for none)",
            "cudnn[0]: expected an object, found number",
            "cudnn[1].soname: expected a whole number, found text",
            "cudnn[1].source: expected one of apt, conda, other, pip, runfile, found 'ftp'",
            "frameworks[0].name: is missing",
            "packages.pip.numpy: expected text, found number",
            "packages.pip.scipy: expected text, found null",
            "packages.apt: expected an object, found list",
            "sources.driver: expected text, found number",
            "problems[0].what: expected text, found number",
            "root: expected true or false, found number",
        ]
    )


@pytest.mark.parametrize(
    ("found", "path"),
    [
        ({"driver": {"version": "99999999999.1"}}, "driver.version"),
        ({"driver": {"version": "-1"}}, "driver.version"),
        ({"driver": {"cuda": "12.4\n13"}}, "driver.cuda"),
        ({"driver": {"version": "\u0665\u0665\u0660.1"}}, "driver.version"),
        ({"driver": []}, "driver"),
        ({"python": {"version": "3"}}, "python.version"),
        ({"python": {"version": "3.11\x1b[2J"}}, "python.version"),
        ({"python": None}, "python"),
        ({"python": {"path": "/a\0b"}}, "python.path"),
        ({"python": {"path": "/" * 5000}}, "python.path"),
        ({"gpus": [{"name": "T4\x1b]0;x\x07"}]}, "gpus[0].name"),
        ({"gpus": [{"compute_capability": "0.5"}]}, "gpus[0].compute_capability"),
        ({"gpus": [{"memory_mib": -1}]}, "gpus[0].memory_mib"),
        ({"gpus": [{"memory_mib": 10**30}]}, "gpus[0].memory_mib"),
        ({"gpus": [{"memory_mib": 1.5}]}, "gpus[0].memory_mib"),
        ({"gpus": [{"memory_mib": True}]}, "gpus[0].memory_mib"),
        ({"gpus": "T4"}, "gpus"),
        ({"loader": {"ld_library_path": ["/a", 1]}}, "loader.ld_library_path[1]"),
        ({"loader": {"ldconfig": ["\0"]}}, "loader.ldconfig[0]"),
        ({"frameworks": [{"name": "torch", "version": "2", "would_load": 1}]}, "frameworks[0].would_load"),
        ({"frameworks": [{"name": "torch", "version": "2", "would_load": {"cudnn": {"version": "x"}}}]}, "would_load.cudnn.version"),
        ({"packages": {"pip": {"": "1"}}}, "packages.pip"),
        ({"packages": {"pip": {"a\u202eb": "1"}}}, "packages.pip"),
        ({"packages": {"pip": {"a" * 201: "1"}}}, "packages.pip"),
        ({"packages": {"pip": {"numpy": ""}}}, "packages.pip.numpy"),
        ({"packages": {"pip": {"Foo_Bar": "1", "foo-bar": "2"}}}, "packages.pip.foo-bar"),
        ({"packages": {"requires": {"torch": "numpy"}}}, "packages.requires.torch"),
        ({"container": {"kind": 1}}, "container.kind"),
        ({"note": "a\0b"}, "note"),
        ({"schema": 1}, "schema"),
    ],
)
def test_what_cannot_be_is_refused(found: dict[str, Any], path: str) -> None:
    faults = faults_of(found)

    assert len(faults) == 1
    assert path in faults[0]
    assert faults[0].isprintable()


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("cudnn-resolve/detect/2", "does not support that format"),
        ("cudnn-resolve/plan/1", "output of another command"),
        ("other", "does not support that format"),
    ],
)
def test_another_schema_is_refused_before_its_rows_are_judged(schema: str, words: str) -> None:
    faults = faults_of({"schema": schema, "gpus": 1})

    assert len(faults) == 1
    assert words in faults[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "ends in the middle"),
        ("{", "ends in the middle"),
        ('{"gpus": [{"name": "T', "JSON"),
        ('{"gpus": [', "ends in the middle"),
        ("[1, 2]", "expected an object, found list"),
        ("3", "expected an object, found number"),
        ("null", "expected an object, found null"),
        ('{"a": NaN}', "NaN is not a JSON value"),
        ('{"a": -Infinity}', "-Infinity is not a JSON value"),
        ('{"driver": null, "driver": {}}', "duplicate key 'driver'"),
        ('{"packages": {"pip": {"a": "1", "a": "2"}}}', "duplicate key 'a'"),
        ('{"\\u001b[2J": 1, "\\u001b[2J": 1}', "duplicate key '\\x1b[2J'"),
        ("[" * 200_000, "nested too deeply"),
        ('{"a":' * 200_000, "nested too deeply"),
        ('{"a": ' + "1" * 10_000 + "}", "thousands of digits"),
        ("{'a': 1}", "is not JSON"),
        ("\x00\x01\x02", "is not JSON"),
    ],
)
def test_what_is_no_json_object_is_explained(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        decode(text, "there.json")

    assert words in str(caught.value)
    assert caught.value.message.startswith("there.json")
    assert caught.value.hint is not None
    assert caught.value.code == "facts-invalid"


def test_a_text_beyond_the_limit_is_not_even_parsed() -> None:
    with pytest.raises(FactsError, match="more than 64 MB"):
        decode(" " * (LIMIT_BYTES + 1))


def test_many_faults_are_counted_but_not_all_told() -> None:
    with pytest.raises(FactsError) as caught:
        decode(json.dumps({"gpus": [1] * 1000}))

    assert len(caught.value.faults) == 1000
    assert str(caught.value).count("\n") < 30
    assert "and 980 more" in str(caught.value)


def test_what_is_right_beside_a_fault_is_none() -> None:
    machine = json.loads(MACHINES[0].read_text("utf-8"))

    assert faults_of({**machine, "root": "yes", "note": "as it is"}) == ["root: expected true or false, found text"]


def test_names_are_normalized() -> None:
    facts = decode('{"packages": {"pip": {"Typing_Extensions": "4", "typing.extensions": "4"}, "requires": {"A.B": ["c"]}}}')

    assert facts.packages.pip == {"typing-extensions": "4"}
    assert facts.packages.requires == {"a-b": ("c",)}
    assert decode('{"frameworks": [{"name": "TensorFlow_GPU", "version": "1"}]}').frameworks == (
        InstalledFramework(name="tensorflow-gpu", version="1"),
    )


@pytest.mark.parametrize(("written", "read"), [("amd64", "x86_64"), ("ARM64", "aarch64"), ("ppc64le", "ppc64le")])
def test_architectures_have_one_name(written: str, read: str) -> None:
    assert from_mapping({"platform": {"arch": written}}).platform.arch == read


def test_a_version_that_no_standard_knows_is_kept_as_it_is() -> None:
    url = "git+https://example.org/x@b134e9945df25c2dcb98ade9129399be10788671"

    assert decode(json.dumps({"packages": {"pip": {"x": url}}})).packages.pip == {"x": url}


def test_capabilities_are_read_in_every_spelling() -> None:
    facts = decode('{"gpus": [{"compute_capability": "sm_90"}, {"compute_capability": "7.5"}]}')

    assert isinstance(facts.gpus, tuple)
    assert [gpu.compute_capability for gpu in facts.gpus] == ["9.0", "7.5"]


def test_the_schema_names_every_fact() -> None:
    schema = msgspec.json.schema(FactsFile)

    top = schema["$defs"]["FactsFile"]["properties"]
    assert set(Facts.__struct_fields__) | {"schema"} == top.keys()
    assert json.dumps(schema)
    assert schema["$defs"]["Gpu"]["properties"]["compute_capability"]["anyOf"][0]["description"].startswith("a compute capability")
