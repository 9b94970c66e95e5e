"""Every rule holds in the toy world, and every rule is broken by a planted fault that names file, row and field."""

from __future__ import annotations

import pytest

from cudnn_resolve.matrix import framework_rules, table_rules
from tests.unit.matrix.toy import HEAD, book, edited

PLANTED = [
    # rule, table, old, new, place of the fault, a word of its message
    ("unique_keys", "gpu/card", '"NVIDIA A100-SXM4-40GB"', '"Tesla T4"', "card[1]", "card[0]: name Tesla T4"),
    ("unique_keys", "framework/alpha", 'version = ["1.0", "2.0"]', 'version = ["1.0", "1.0.0"]', "build[0]", "has the key of build[0]"),
    (
        "ranges_not_inverted",
        "cudnn/release",
        'cuda_first = "12.0"',
        'cuda_first = "12.8"\ncuda_last = "12.6"',
        "build[0].cuda_first",
        "12.8",
    ),
    ("ranges_not_inverted", "cuda/soname", 'last = "11.8"', 'last = "10.2"', "soname[0].first", "after last 10.2"),
    ("minimum_drivers_monotone", "driver/minimum", '"535.104.05", b', '"560.1", b', "minimum[2].driver", "older than 560.1"),
    ("branch_cuda_monotone", "driver/branch", 'cuda = "12.2"', 'cuda = "12.9"', "branch[2].cuda", "12.4"),
    ("branch_names", "driver/branch", 'name = "R535"', 'name = "R530"', "branch[1].name", "R535"),
    ("floors_below_minimums", "driver/minimum", '"525.60.13"', '"545.1"', "floor[1].first", "535.104.05"),
    ("minimums_known", "driver/minimum", 'cuda = "12.2.2"', 'cuda = "12.1.2"', "release[2].cuda", "12.2.2"),
    ("minimums_known", "driver/minimum", "cuda_major = 11", "cuda_major = 10", "release[3].cuda", "[[floor]] for CUDA 11"),
    ("release_lines", "cuda/release", '"12.2.2", line = "12.2"', '"12.2.2", line = "12.3"', "release[2].line", "12.2.2"),
    ("references_known", "driver/forward", "base = 535", "base = 530", "forward[0].base", "R530"),
    ("soname_ranges", "cuda/soname", 'last = "11.8"', 'last = "12.1"', "soname[1].first", "libcublas.so.11"),
    ("soname_ranges", "cuda/soname", 'first = "12.0"', 'first = "12.4"', "soname[1].first", "12.2"),
    (
        "references_known",
        "gpu/card",
        'capability = "7.5", class = "geforce"',
        'capability = "7.2", class = "geforce"',
        "card[2].cap",
        "7.2",
    ),
    ("references_known", "cudnn/release", '"8.0", "9.0"', '"8.6", "9.0"', "build[0].capability", "8.6"),
    ("card_names", "gpu/card", '"A100"', '"t4"', "card[1].alias", "Tesla T4"),
    ("peaks_fit", "gpu/peak", "fp16 = 65", "fp16 = 65, bf16 = 65", "peak[0].bf16", "capability 7.5"),
    ("peaks_fit", "gpu/peak", "fp16 = 65", "fp16 = 65, tf32 = 20", "peak[0].tf32", "capability 7.5"),
    ("peaks_fit", "gpu/peak", "fp32 = 8.1", "fp32 = 0", "peak[0].fp32", "more than 0"),
    ("peaks_fit", "gpu/peak", "fp16 = 65", "fp16 = 0", "peak[0].fp16", "more than 0"),
    ("peaks_fit", "gpu/peak", "fp16 = 65", "fp16 = 6", "peak[0].fp16", "less than fp32"),
    ("peaks_fit", "gpu/peak", "bf16 = 312", "bf16 = 311", "peak[1].bf16", "the same as fp16"),
    ("peaks_fit", "gpu/peak", '"Tesla T4"', '"Tesla T44"', "peak[0].name", "not a card"),
    ("peaks_fit", "gpu/peak", '"NVIDIA A100-SXM4-40GB"', '"NVIDIA A100-SXM4-40GB", alias = ["tesla t4"]', "peak[1].alias", "peak[0]"),
    ("places_fit", "gpu/place", '"Tesla T4"', '"Tesla T44"', "place[0].gpu", "not a card"),
    ("places_fit", "gpu/place", '"g4dn.*"', '"G4dn.*"', "place[0].match", "lower case"),
    ("places_fit", "gpu/place", '"p4d.*"', '"g4dn.*"', "place[1].match", "already g4dn"),
    ("cudnn_capabilities", "cudnn/release", 'capability = ["7.5"]', "capability = []", "build[1].capability", "missing"),
    ("cudnn_capabilities", "gpu/architecture", 'cuda_first = "11.8"', 'cuda_first = "12.8"', "build[0].capability", "unknown to CUDA 12.4"),
    ("cudnn_numbers_agree", "cudnn/release", "soname = 9", "soname = 8", "build[0].soname", "9.1.0.70"),
    ("cudnn_numbers_agree", "cudnn/release", 'cuda_built = "12.4"', 'cuda_built = "11.8"', "build[0].cuda_built", "CUDA 12"),
    ("cudnn_numbers_agree", "cudnn/release", '"9.1.0.70-1"', '"9.1.1.17-1"', "build[0].apt.version", "9.1.0.70"),
    ("references_known", "cuda/wheel", 'cuda = "12.4.1"', 'cuda = "12.3.1"', "wheel[0].cuda", "12.3.1"),
    ("references_known", "cuda/wheel", "nvidia-cublas-cu12", "nvidia-npp-cu12", "wheel[0].package", "component.toml"),
    ("slots_shared", "package/slot", '"alpha", "alpha-gpu"', '"alpha"', "slot[0].packages", "excludes nothing"),
    ("slots_shared", "package/slot", '"alpha-gpu"', '"nvidia-cudnn-cu12"', "slot[0].packages", "nvidia/cudnn"),
    ("dates_sane", "cuda/release", "2024-04-03", "2026-02-01", "release[0].date", "2026-01-31"),
    ("dates_sane", "cuda/release", "2024-04-03", "2002-01-01", "release[0].date", "2002-01-01"),
    ("known_indexes", "index", 'id = "alpha-cu118"', 'id = "alpha-cu117"', "build[1].index", "alpha-cu118"),
    ("known_indexes", "index", '"alpha"]', '"gamma"]', "release[0].index", "does not serve alpha"),
    ("one_framework_each", "framework/beta", 'packages = ["beta"]', 'packages = ["beta", "alpha"]', "framework", "alpha"),
    ("packages_harvested", "framework/alpha", '"alpha-vision"', '"alpha-text"', "framework", "wheel/alpha-text.toml"),
    ("installable", "framework/alpha", '["1.0", "2.0"]', '["1.0", "2.0.1"]', "build[0].version", "alpha 2.0.1"),
    ("installable", "wheel/beta", "py3-none-any", "sdist", "build[0].version", "no Linux wheel"),
    ("installable", "wheel/beta", ", metadata = 1", "", "build[0].version", "not harvested"),
    ("installable", "framework/alpha", 'requires = ["numpy"]\nrequires_like = "default"\n', "", "build[1].requires", "is missing"),
    ("measurements_agree", "measured/alpha", '"12.4"', '"12.6"', "build[0].cuda", "is 12.4, but the x86_64 wheel of alpha says 12.6"),
    ("measurements_agree", "measured/alpha", '"9.1.0.70"', '"9.3"', "build[0].cudnn", "is 9.1, but the x86_64 wheel of alpha says 9.3"),
    ("measurements_agree", "framework/alpha", '"sm_80", ', '"sm_80", "sm_86", ', "build[0].capability", "lists sm_86, which"),
    ("measurements_agree", "framework/alpha", '["sm_75", "sm_80", "compute_80"]', '["sm_75"]', "build[0].capability", "omits sm_80"),
    ("measurements_agree", "measured/alpha", 'code = ["sm_75", ', "code = [", "build[0].capability", "lists sm_75, which"),
    ("requires_like_found", "wheel/alpha", "metadata = {x86_64 = 1, aarch64 = 2}", "", "build[1].requires_like", "alpha 2.0"),
    ("extras_exist", "framework/alpha", 'extra = "cuda"', 'extra = "gpu"', "build[0].extra", "'gpu'"),
    ("libraries_reachable", "apt/package", '"libraries"', '"cudart"', "build[0].loads", "cufft"),
    ("references_known", "framework/alpha", 'cuda = "11.0"', 'cuda = "11.8"', "build[1].cuda", "11.8"),
    ("cudnn_served", "framework/alpha", 'cudnn = "9.1"', 'cudnn = "9.3"', "build[0].cudnn", "9.3"),
    ("references_known", "framework/alpha", "sm_80", "sm_86", "build[0].capability", "8.6"),
    ("references_known", "framework/alpha", 'capability_first = "7.5"', 'capability_first = "3.5"', "build[1].capability_first", "3.5"),
    ("cpu_builds_plain", "framework/alpha", 'cuda = "12.4"\n', "", "build[0].cuda", "is missing"),
    ("cpu_builds_plain", "framework/alpha", 'delivery = "bundled"\n', "", "build[1].delivery", "CUDA 11.0"),
    ("cudnn_wheels_harvested", "wheel/nvidia-cudnn-cu12", "9.1.0.70", "9.2.0.82", "build[0].wheel", "9.1.0.70"),
    ("components_harvested", "cuda/component", '"nvidia-cublas-cu12"', '"nvidia-cublas"', "component[0].package", "nvidia-cublas.toml"),
    ("specifiers_match", "advisory", "==9.1.0.70", "==9.1.0.71", "advisory[0].versions", "no known release"),
    ("specifiers_match", "trap", '"<2"', '"<1"', "trap[0].versions", "'<1'"),
    ("specifiers_match", "trap", 'framework = "alpha"', 'framework = "gamma"', "trap[0].framework", "gamma"),
    ("specifiers_match", "framework/alpha", 'versions = "<2"', 'versions = ">9"', "bound[0].versions", ">9"),
    ("references_known", "advisory", '"9.0"]', '"6.1"]', "advisory[0].capability", "6.1"),
    ("releases_ordered", "wheel/alpha-vision", 'version = "0.1"', 'version = "0.9"', "release[1].version", "0.2 comes after 0.9"),
    ("releases_ordered", "wheel/beta", "py3-none-any", "py3", "release[0].tags", "'py3'"),
    ("bounds_agree", "framework/alpha", '"numpy<2"', '"numpy"', "bound[0].requirement", "no version specifier"),
    ("bounds_agree", "framework/alpha", '"numpy<2"', '"alpha-gpu<2"', "bound[0].requirement", "the framework itself"),
]
EVERY_RULES = {one.__name__: one for one in (*table_rules.RULES, *framework_rules.RULES)}


def test_the_toy_world_keeps_every_law() -> None:
    assert table_rules.check(book()) == ()


@pytest.mark.parametrize(("name", "table", "old", "new", "place", "word"), PLANTED, ids=[f"{one[0]}-{one[3][:20]}" for one in PLANTED])
def test_a_planted_fault_is_found(name: str, table: str, old: str, new: str, place: str, word: str) -> None:
    if name == "libraries_reachable":
        world = book(
            framework__alpha=_alpha().replace('delivery = "wheel"', 'delivery = "system"').replace('["cublas", "cudnn"]', '["cufft"]'),
            apt__package=_table("apt/package").replace(old, new),
        )
    else:
        world = edited(table, old, new)
    faults = list(EVERY_RULES[name](world))
    assert [fault for fault in faults if fault.place.startswith(place) and word in fault.message], [str(one) for one in faults]
    assert all(fault.file.startswith("toy/") and fault.file.endswith(".toml") for fault in faults)
    assert set(faults) <= set(table_rules.check(world))


def test_every_law_has_a_planted_fault() -> None:
    elsewhere = {"removals_match", "whole_heads"}
    assert set(EVERY_RULES) - elsewhere == {one[0] for one in PLANTED}


def test_a_build_of_a_cuda_older_than_every_table_is_known_only_to_be_refused() -> None:
    old = '[[build]]\nversion = "2.0"\nvariant = "cu80"\ncuda = "8.0"\ncudnn = "6"\ndelivery = "system"\ncapability_first = "7.5"\n'
    world = book(framework__alpha=_alpha() + old)
    assert not list(table_rules.references_known(world))
    assert not list(framework_rules.cudnn_served(world))


def test_every_law_says_what_it_holds() -> None:
    assert all(one.__doc__ for one in EVERY_RULES.values())


def test_rows_of_one_key_may_differ_by_platform() -> None:
    twin = (
        '[[build]]\nversion = "2.0"\nvariant = "cu124"\narch = ["aarch64"]\ncuda = "12.4"\ndelivery = "bundled"\ncapability_first = "7.5"\n'
    )
    assert not list(table_rules.unique_keys(book(framework__alpha=_alpha() + twin)))
    assert list(
        table_rules.unique_keys(book(framework__alpha=_alpha() + twin.replace('arch = ["aarch64"]', 'arch = ["aarch64", "x86_64"]')))
    )
    assert list(table_rules.unique_keys(book(framework__alpha=_alpha() + twin.replace('arch = ["aarch64"]\n', ""))))


def test_an_overlay_that_removes_nothing_breaks_a_law() -> None:
    over = {"gpu/card": 'card = [{name = "NVIDIA GeForce RTX 2080 Ti", remove = true}, {name = "Tesla T5", remove = true}]'}
    assert [str(one) for one in table_rules.check(book(over))] == [
        "over1/gpu/card.toml: card[1]: removes nothing: there is no such row below it"
    ]


def test_an_overlay_is_judged_at_once_where_it_could_not_be_used() -> None:
    unknown = {"framework/alpha": '[[build]]\nversion = "9.0"\nvariant = "cpu"\nindex = "nowhere"\n'}
    assert [str(one) for one in table_rules.overlay_faults(book(unknown))] == [
        "over1/framework/alpha.toml: build[0].index: 'nowhere' is neither `default` nor an id of index.toml"
    ]
    headless = {"framework/gamma": '[[build]]\nversion = "9.0"\nvariant = "cpu"\n'}
    assert [str(one) for one in table_rules.overlay_faults(book(headless))] == [
        "over1/framework/gamma.toml: framework: is missing: name, title, packages"
    ]
    twice = {
        "index": 'index = [{id = "x", url = "https://a.example", kind = "simple"}, {id = "x", url = "https://b.example", kind = "simple"}]'
    }
    assert [str(one) for one in table_rules.overlay_faults(book(twice))] == ["over1/index.toml: index[1]: has the key of index[0]: id x"]


def test_a_fault_below_an_overlay_is_not_laid_to_it() -> None:
    texts = {"gpu/card": 'card = [{name = "New", capability = "7.5", class = "geforce"}]'}
    world = book(texts, gpu__card=_table("gpu/card").replace('"NVIDIA A100-SXM4-40GB"', '"Tesla T4"'))
    assert table_rules.overlay_faults(world) == ()
    assert {fault.file for fault in table_rules.check(world)} == {"toy/gpu/card.toml"}


def _alpha() -> str:
    return _table("framework/alpha")


def _table(name: str) -> str:
    from tests.unit.matrix.toy import WORLD

    assert WORLD[name].startswith((HEAD, "origin"))
    return WORLD[name]
