from __future__ import annotations

from typing import Any

import pytest

from cudnn_resolve.facts.cudnn_files import parts_of
from cudnn_resolve.facts.model import CudnnCopy
from cudnn_resolve.host.protocol import CommandResult
from cudnn_resolve.probe.cudnn import find_copies
from cudnn_resolve.probe.loader import DynamicLoader
from cudnn_resolve.version import CudnnVersion
from tests.elf_writer import write_elf
from tests.fake_host import FakeHost
from tests.library_tree import SITE, WHEEL, Files, cudnn_files, environment_of, machine, record_of, tells

LIBZ = {"/usr/lib/x86_64-linux-gnu/libz.so.1": write_elf("libz.so.1")}
CUDA: Files = {
    f"{SITE}/nvidia/cublas/lib/libcublasLt.so.12": write_elf("libcublasLt.so.12"),
    "/usr/lib/x86_64-linux-gnu/libnvrtc.so.12": write_elf("libnvrtc.so.12"),
}
"""What a cuDNN for CUDA 12 opens when it is used, where it is found."""


def only(host: FakeHost, *arguments: Any, **options: Any) -> CudnnCopy:
    copies, _ = find_copies(DynamicLoader(host, environment_of(*arguments, **options)))
    assert len(copies) == 1, copies
    return copies[0]


def test_a_wheel_is_known_to_its_build() -> None:
    files = cudnn_files(WHEEL, "9.1.0")
    wheel, record = record_of(files, "nvidia-cudnn-cu12", "9.1.0.70")
    host = machine({**files, **record, **CUDA}, {f"{WHEEL}/libcudnn.so.9": tells(90100)})

    copies, problems = find_copies(DynamicLoader(host, environment_of(wheel)))

    assert problems == ()
    assert copies == (
        CudnnCopy(
            version="9.1.0.70",
            soname=9,
            cuda="12.4",
            path=WHEEL,
            source="pip",
            complete=True,
            parts=tuple(sorted(parts_of(CudnnVersion("9.1.0")))),
            owner="nvidia-cudnn-cu12",
            problems=(),
        ),
    )


def test_without_any_cudnn_nobody_is_asked() -> None:
    host = machine({f"{SITE}/numpy.libs/libopenblas.so": b""})

    assert find_copies(DynamicLoader(host, environment_of())) == ((), ())
    assert host.asked == []


def test_every_place_and_the_order_of_the_loader() -> None:
    places = (
        "/first/lib",
        WHEEL,
        f"{SITE}/torch/lib",
        "/venv/lib",
        "/cached",
        "/usr/local/cuda-12.4/lib64",
        "/usr/local/cuda-12.4/targets/x86_64-linux/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/local/lib",
        "/opt/cudnn-8.9/lib",
        "/opt/unpacked/nvidia/cudnn/lib",
        "/usr/local/cudnn-8/cuda/lib64",
        "/home/u/cudnn/lib64",
        "/named/lib",
        "/home/u/.cupy/cuda_lib/12.x/cudnn/8.8.1/lib",
    )
    files: Files = {}
    for place in places:
        files |= cudnn_files(place, "8.9.7")
    host = machine(files, environ={"HOME": "/home/u", "CUDNN_PATH": "/named"})
    environment = environment_of(
        library_path=("/first/lib", "relative"), cache={"libcudnn.so.8": "/cached/libcudnn.so.8"}, cuda=("/usr/local/cuda-12.4",)
    )

    copies, _ = find_copies(DynamicLoader(host, environment))

    assert [copy.path for copy in copies] == list(places)


def test_one_directory_under_two_names_is_one_copy() -> None:
    files = cudnn_files("/usr/local/cuda-12.4/targets/x86_64-linux/lib", "8.9.7")
    links = {"/usr/local/cuda": "/usr/local/cuda-12.4", "/usr/local/cuda-12.4/lib64": "/usr/local/cuda-12.4/targets/x86_64-linux/lib"}
    host = machine(files, links=links)

    copy = only(host, library_path=("/usr/local/cuda/lib64",), cuda=("/usr/local/cuda-12.4",))

    assert copy.path == "/usr/local/cuda-12.4/targets/x86_64-linux/lib"


def test_two_generations_in_one_directory_are_two_copies() -> None:
    files = {**cudnn_files("/opt/cudnn/lib", "8.9.7"), **cudnn_files("/opt/cudnn/lib", "9.1.0")}
    host = machine(files, {"/opt/cudnn/lib/libcudnn.so.8": tells(8907, 12020), "/opt/cudnn/lib/libcudnn.so.9": tells(90100)})

    copies, _ = find_copies(DynamicLoader(host, environment_of()))

    assert [(copy.soname, copy.version, copy.complete) for copy in copies] == [(8, "8.9.7", True), (9, "9.1.0", True)]


def test_other_architectures_are_not_copies() -> None:
    files = {"/opt/cudnn/lib/libcudnn.so.9": write_elf("libcudnn.so.9", machine=183)}

    assert find_copies(DynamicLoader(machine(files), environment_of())) == ((), ())
    assert only(machine(files), arch="aarch64").soname == 9


def test_cudnn_7_is_one_library() -> None:
    host = machine(cudnn_files("/opt/cudnn-7/lib", "7.6.5"), {"/opt/cudnn-7/lib/libcudnn.so.7": tells(7605, 10020)})

    copy = only(host)

    assert (copy.version, copy.soname, copy.cuda, copy.complete, copy.problems) == ("7.6.5", 7, "10.2", True, ())


def test_a_generation_that_is_newer_than_this_program() -> None:
    files: Files = {"/opt/cudnn/lib/libcudnn.so.10": write_elf("libcudnn.so.10")}

    copy = only(machine(files, {"/opt/cudnn/lib/libcudnn.so.10": tells(100100, 14000)}))

    assert (copy.version, copy.soname, copy.cuda, copy.complete, copy.problems) == ("10.1.0", 10, "14.0", None, ())


# --- which release it is, where the library does not say ---


def test_the_name_of_the_file_tells_the_release() -> None:
    files = cudnn_files("/opt/cudnn/lib", "8.9.7", library=False)
    host = machine(
        {**files, "/opt/cudnn/lib/libcudnn.so.8.9.7": write_elf("libcudnn.so.8")},
        links={"/opt/cudnn/lib/libcudnn.so.8": "/opt/cudnn/lib/libcudnn.so.8.9.7"},
    )

    assert (only(host).version, only(host).complete) == ("8.9.7", True)


def test_the_header_tells_the_release() -> None:
    header = "#define CUDNN_MAJOR 8\n#define CUDNN_MINOR 6\n#define CUDNN_PATCHLEVEL 0\n"
    files: Files = {**cudnn_files("/opt/cudnn/lib", "8.9.7"), "/opt/cudnn/include/cudnn_version.h": header}

    assert only(machine(files)).version == "8.6.0"
    files["/opt/cudnn/include/cudnn_version.h"] = header.replace("MAJOR 8", "MAJOR 9")  # of another copy
    assert only(machine(files)).version is None


def test_the_package_tells_the_release() -> None:
    files = cudnn_files(WHEEL, "8.5.0")
    wheel, record = record_of(files, "nvidia-cudnn-cu11", "8.5.0.96")

    copy = only(machine({**files, **record}), wheel)

    assert (copy.version, copy.cuda) == ("8.5.0.96", "11")


def test_the_library_itself_is_believed_over_everything() -> None:
    header = "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 9\n#define CUDNN_PATCHLEVEL 9\n"
    files = {**cudnn_files(WHEEL, "9.1.0"), f"{SITE}/nvidia/cudnn/include/cudnn_version.h": header}
    wheel, record = record_of(files, "nvidia-cudnn-cu12", "9.1.0.70")
    host = machine({**files, **record}, {f"{WHEEL}/libcudnn.so.9": tells(92800)})

    copies, problems = find_copies(DynamicLoader(host, environment_of(wheel)))

    assert copies[0].version == "9.28.0"
    assert "the files are cuDNN 9.28.0, although nvidia-cudnn-cu12 9.1.0.70 is installed" in copies[0].problems
    assert [problem.why for problem in problems] == ["the files are cuDNN 9.28.0, although nvidia-cudnn-cu12 9.1.0.70 is installed"]


# --- who brought it ---


def apt_machine(listed: str) -> FakeHost:
    directory = "/usr/lib/x86_64-linux-gnu"
    files: Files = {**cudnn_files(directory, "8.9.7"), "/var/lib/dpkg/info/libcudnn8.list": listed}
    return machine(files, {f"{directory}/libcudnn.so.8": tells(8907, 12020)})


def test_apt_by_the_list_of_its_files() -> None:
    packages = {"libcudnn8": "8.9.7.29-1+cuda12.2", "libcudnn8-dev": "8.9.7.29-1+cuda12.2"}

    copy = only(apt_machine("/.\n/usr/lib/x86_64-linux-gnu/libcudnn.so.8.9.7\n"), apt=packages)

    assert (copy.version, copy.cuda, copy.source, copy.owner) == ("8.9.7.29", "12.2", "apt", "libcudnn8")


def test_files_that_apt_does_not_list_are_not_its() -> None:
    copy = only(apt_machine("/.\n/somewhere/else/libcudnn.so.8.9.7\n"), apt={"libcudnn8": "8.9.7.29-1+cuda12.2"})

    assert (copy.version, copy.source, copy.owner) == ("8.9.7", "other", None)


def test_apt_without_its_lists() -> None:
    files = cudnn_files("/usr/lib/x86_64-linux-gnu", "9.8.0")

    copy = only(machine(files), apt={"libcudnn9-cuda-12": "9.8.0.87-1", "libcudnn8": "8.9.7.29-1+cuda12.2"})

    assert (copy.version, copy.cuda, copy.owner) == ("9.8.0.87", "12", "libcudnn9-cuda-12")


def test_conda() -> None:
    files: Files = {**cudnn_files("/conda/lib", "8.9.7"), "/conda/conda-meta/cudnn-8.9.7.29-hbc23b4c_3.json": "{}"}

    copy = only(machine(files), prefix="/conda")

    assert (copy.version, copy.source, copy.owner) == ("8.9.7.29", "conda", "cudnn")


def test_a_framework_that_brings_it_in_its_own_wheel() -> None:
    wheel, record = record_of({}, "torch", "2.3.1+cu118")

    copy = only(machine({**cudnn_files(f"{SITE}/torch/lib", "8.7.0"), **record}), wheel)

    assert (copy.source, copy.owner, copy.complete) == ("pip", "torch", True)


def test_two_wheels_over_the_same_files() -> None:
    old, new = cudnn_files(WHEEL, "9.1.0"), cudnn_files(WHEEL, "9.19.0", size=100)
    cu12, old_record = record_of(old, "nvidia-cudnn-cu12", "9.1.0.70")
    cu13, new_record = record_of(new, "nvidia-cudnn-cu13", "9.19.0.56")
    host = machine({**new, **old_record, **new_record}, {f"{WHEEL}/libcudnn.so.9": tells(91900, 13010)})

    copies, problems = find_copies(DynamicLoader(host, environment_of(cu12, cu13)))

    assert [(copy.version, copy.owner, copy.complete) for copy in copies] == [("9.19.0.56", "nvidia-cudnn-cu13", True)]
    assert problems[0].what == "nvidia-cudnn-cu12 9.1.0.70 and nvidia-cudnn-cu13 9.19.0.56"
    assert "own the same files" in problems[0].why
    assert "the files there are those of nvidia-cudnn-cu13 9.19.0.56" in problems[0].why


def test_two_wheels_of_one_release_are_told_apart_by_cuda() -> None:
    files = cudnn_files(WHEEL, "9.19.0")
    cu12, record_12 = record_of(files, "nvidia-cudnn-cu12", "9.19.0.56")
    cu13, record_13 = record_of(files, "nvidia-cudnn-cu13", "9.19.0.56")
    host = machine({**files, **record_12, **record_13}, {f"{WHEEL}/libcudnn.so.9": tells(91900, 13010)})

    assert find_copies(DynamicLoader(host, environment_of(cu12, cu13)))[0][0].owner == "nvidia-cudnn-cu13"


# --- whether it is whole ---


def test_parts_that_are_missing() -> None:
    files = cudnn_files("/opt/cudnn/lib", "9.1.0", parts=("graph", "ops", "cnn", "adv", "heuristic"))

    copy = only(machine(files, {"/opt/cudnn/lib/libcudnn.so.9": tells(90100)}))

    assert copy.complete is False
    names = "libcudnn_engines_precompiled.so.9, libcudnn_engines_runtime_compiled.so.9"
    assert f"incomplete: {names} are not there" in copy.problems


def test_parts_alone() -> None:
    host = machine(cudnn_files("/half/lib", "9.0.0", parts=("graph",), library=False))

    copy = only(host, library_path=("/half/lib",))

    assert (copy.version, copy.complete) == (None, False)
    assert "parts of cuDNN 9 without libcudnn.so.9 itself" in copy.problems
    assert host.asked == []


def test_a_bundled_library_without_its_parts_is_not_asked_because_it_would_abort() -> None:
    name = "libcudnn-74a4c495.so.9.1.0"
    wheel, record = record_of({}, "ctranslate2", "4.6.0")
    host = machine({f"{SITE}/ctranslate2.libs/{name}": write_elf(name, rpath="$ORIGIN"), **record})

    copy = only(host, wheel)

    assert (copy.version, copy.owner, copy.complete) == ("9.1.0", "ctranslate2", False)
    assert copy.problems == ("none of its parts lies beside it: they are searched for elsewhere",)
    assert host.asked == []


def test_releases_mixed_by_the_names_of_their_files() -> None:
    lib = "/opt/cudnn/lib"
    files: Files = {f"{lib}/libcudnn.so.8.9.7": write_elf("libcudnn.so.8")}
    links = {f"{lib}/libcudnn.so.8": f"{lib}/libcudnn.so.8.9.7"}
    for part in ("ops_infer", "ops_train", "cnn_infer", "cnn_train", "adv_infer", "adv_train"):
        number = "8.6.0" if part == "cnn_train" else "8.9.7"
        files[f"{lib}/libcudnn_{part}.so.{number}"] = write_elf(f"libcudnn_{part}.so.8")
        links[f"{lib}/libcudnn_{part}.so.8"] = f"{lib}/libcudnn_{part}.so.{number}"

    copies, problems = find_copies(DynamicLoader(machine(files, links=links), environment_of()))

    assert copies[0].complete is False
    assert any(problem.startswith("mixed releases: libcudnn_cnn_train.so.8.6.0; libcudnn.so.8.9.7, ") for problem in copies[0].problems)
    assert problems[0].what == f"cuDNN in {lib}"


def test_releases_mixed_by_what_the_library_says() -> None:
    files = cudnn_files("/opt/cudnn/lib", "9.1.0")
    host = machine(files, {"/opt/cudnn/lib/libcudnn.so.9": tells(90100, graph=0, ops=1002, cnn=0)})

    copies, problems = find_copies(DynamicLoader(host, environment_of()))

    assert copies[0].complete is False
    assert any("libcudnn rejects libcudnn_ops.so.9" in problem for problem in copies[0].problems)
    assert len(problems) == 1


def test_files_that_are_not_those_of_the_wheel() -> None:
    files = cudnn_files(WHEEL, "9.1.0")
    wheel, record = record_of(files, "nvidia-cudnn-cu12", "9.1.0.70")
    changed = f"{WHEEL}/libcudnn_ops.so.9"
    gone = f"{WHEEL}/libcudnn_adv.so.9"
    there = {path: content for path, content in files.items() if path != gone}
    host = machine({**there, changed: write_elf("libcudnn_ops.so.9", padding=7), **record}, {f"{WHEEL}/libcudnn.so.9": tells(90100)})

    copy = only(host, wheel)

    assert copy.complete is False
    assert "not the files of nvidia-cudnn-cu12 9.1.0.70: libcudnn_ops.so.9" in copy.problems
    assert "missing since nvidia-cudnn-cu12 9.1.0.70 was installed: libcudnn_adv.so.9" in copy.problems


def test_no_file_with_the_name_that_programs_ask_for() -> None:
    files: Files = {"/opt/cudnn/lib/libcudnn.so.7.6.5": write_elf("libcudnn.so.7")}

    host = machine(files, {"/opt/cudnn/lib/libcudnn.so.7.6.5": tells(7605)})

    assert only(host).problems == ("libcudnn.so.7, the name that programs ask for, is missing: there is only libcudnn.so.7.6.5",)


def test_a_library_without_a_number_tells_its_soname() -> None:
    files: Files = {"/opt/cudnn/lib/libcudnn.so": write_elf("libcudnn.so.7"), "/opt/other/lib/libcudnn.so": b"INPUT(libcudnn.so.7)"}

    assert only(machine(files)).soname == 7


def test_a_file_that_is_no_library() -> None:
    files: Files = {"/opt/cudnn/lib/libcudnn.so.7": b"version https://git-lfs.github.com/spec/v1\n"}
    host = machine(files)

    assert "libcudnn.so.7 cannot be used: it is not an ELF file" in only(host).problems
    assert host.asked == []


# --- what it needs ---


def test_needs_that_are_not_found() -> None:
    files = cudnn_files(
        "/opt/cudnn/lib", "9.1.0", needs={"graph": ("libz.so.1",), "ops": ("libcudnn_graph.so.9",), "adv": ("libcuda.so.1",)}
    )
    said = {"/opt/cudnn/lib/libcudnn.so.9": tells(90100)}

    problems = only(machine({**files, **CUDA}, said)).problems

    assert problems == ("libcudnn_graph.so.9 needs libz.so.1, which is not found",)
    assert only(machine({**files, **CUDA, **LIBZ}, said)).problems == ()


def test_the_drivers_library_is_missed_where_there_is_a_driver() -> None:
    files = cudnn_files("/opt/cudnn/lib", "9.1.0", needs={"engines_runtime_compiled": ("libcuda.so.1",)})
    said = {"/opt/cudnn/lib/libcudnn.so.9": tells(90100)}
    driver: Files = {"/dev/nvidiactl": b""}

    there = only(machine({**files, **CUDA, **driver}, said))

    assert there.problems == ("libcudnn_engines_runtime_compiled.so.9 needs libcuda.so.1, which comes with the driver and is not found",)
    assert only(machine({**files, **CUDA}, said)).problems == ()
    assert only(machine({**files, **CUDA, **driver}, said), cache={"libcuda.so.1": "/usr/lib/libcuda.so.1"}).problems == there.problems
    assert (
        only(
            machine({**files, **CUDA, **driver, "/usr/lib64-nvidia/libcuda.so.1": write_elf("libcuda.so.1")}, said),
            library_path=("/usr/lib64-nvidia",),
        ).problems
        == ()
    )


def test_what_is_opened_when_it_is_used() -> None:
    files = cudnn_files(WHEEL, "9.1.0")
    said = {f"{WHEEL}/libcudnn.so.9": tells(90100)}
    wanted = "opens libnvrtc.so.12 and libcublasLt.so.12 when it is used, which is found only if the program has loaded it before"

    assert only(machine(files, said)).problems == (wanted,)
    assert only(machine({**files, **CUDA}, said)).problems == ()


def test_what_frameworks_load_first_from_other_wheels_is_not_missed() -> None:
    files = cudnn_files(WHEEL, "9.19.0")
    for name in ("libnvrtc.so.13", "libcublasLt.so.13"):
        files[f"{SITE}/nvidia/cu13/lib/{name}"] = write_elf(name)

    assert only(machine(files, {f"{WHEEL}/libcudnn.so.9": tells(91900, 13010)})).problems == ()


# --- children that fail ---


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"error": "libz.so.1: cannot open shared object file"}, "cannot be loaded: libz.so.1: cannot open"),
        ({"ended": "time"}, "hangs while it is loaded"),
        ({"loaded": True, "ended": "time"}, "hangs when it is asked for its version"),
        (
            {"loaded": True, "ended": "SIGABRT", "said": "x\nCould not load y\n"},
            "ends the process (SIGABRT) when it is asked for its version: Could",
        ),
        ({"loaded": True, "version": 90100, "asking": "cnn", "ended": "SIGSEGV"}, "ends the process (SIGSEGV) when its part cnn is asked"),
        ({"loaded": True, "ended": "exit"}, "gives no answer when it is asked for its version"),
        ({"loaded": True, "version": 7, "cuda": "x", "checks": [1], "done": True}, None),
        (None, "was not asked: the others used up the time limit"),
    ],
)
def test_a_library_that_fails_is_a_problem_and_the_package_tells_its_release(answer: dict[str, Any] | None, words: str | None) -> None:
    files = cudnn_files(WHEEL, "9.1.0")
    wheel, record = record_of(files, "nvidia-cudnn-cu12", "9.1.0.70")
    host = machine({**files, **record, **CUDA}, {} if answer is None else {f"{WHEEL}/libcudnn.so.9": answer})

    copies, problems = find_copies(DynamicLoader(host, environment_of(wheel)))

    assert copies[0].version == "9.1.0.70"
    assert copies[0].complete is True
    assert len(copies[0].problems) == (words is not None)
    assert words is None or words in copies[0].problems[0]
    assert [problem.what for problem in problems] == ([f"cuDNN in {WHEEL}"] if words else [])


@pytest.mark.parametrize(
    "result",
    [
        CommandResult(missing=True, stderr="no such program"),
        CommandResult(timed_out=True),
        CommandResult(signal="SIGSEGV"),
        CommandResult(returncode=0, stdout="cudnn-resolve-answer {"),
        CommandResult(returncode=0, stdout='cudnn-resolve-answer {"answers": 3}'),
        CommandResult(returncode=0, stdout='cudnn-resolve-answer {"failed": "this Python was built without ctypes"}'),
    ],
)
def test_where_no_child_can_ask_files_speak(result: CommandResult) -> None:
    files = cudnn_files("/opt/cudnn/lib", "9.1.0")
    host = FakeHost(files, programs=lambda _argv: result)

    copies, problems = find_copies(DynamicLoader(host, environment_of()))

    assert [copy.soname for copy in copies] == [9]
    assert [problem.what for problem in problems] == ["versions of cuDNN", "dependencies of cuDNN"]
    assert problems[0].why.startswith("/venv/bin/python ")


def test_settings_of_the_user_do_not_reach_the_child() -> None:
    class Watched(FakeHost):
        env: dict[str, str] = {}  # noqa: RUF012 - one test

        def run(self, *arguments: Any, **options: Any) -> CommandResult:
            self.env.update(options["env"])
            return super().run(*arguments, **options)

    host = Watched(cudnn_files("/opt/cudnn/lib", "9.1.0"), environ={"LD_PRELOAD": "x", "CUDNN_LOGLEVEL_DBG": "3", "PATH": "/bin"})
    find_copies(DynamicLoader(host, environment_of()))

    assert host.env == {"PATH": "/bin", "LC_ALL": "C"}
