"""Releases of Linux distributions: names, C library, Python; and the Pythons that uv downloads."""

import re

from cudnn_resolve.errors import UsageError, did_you_mean

_OS = r"(?a)([a-z]+(?:[-_][a-z]+)*)[-_ :]?(\d{1,4}(?:\.\d{1,3}){0,2})?"
_DISTRIBUTIONS = {"redhat": "rhel", "amazon": "amzn", "amazonlinux": "amzn", "rockylinux": "rocky", "alma": "almalinux", "suse": "sles"}
_GLIBC_OF = {  # C library of each release of a distribution; source: their package archives
    "ubuntu16.04": "2.23", "ubuntu18.04": "2.27", "ubuntu20.04": "2.31", "ubuntu22.04": "2.35", "ubuntu24.04": "2.39",
    "debian9": "2.24", "debian10": "2.28", "debian11": "2.31", "debian12": "2.36", "debian13": "2.41",
    "rhel7": "2.17", "rhel8": "2.28", "rhel9": "2.34", "rhel10": "2.39",
    "amzn2": "2.26", "amzn2023": "2.34",
}  # fmt: skip
SYSTEM_PYTHON = {
    "ubuntu18.04": "3.6", "ubuntu20.04": "3.8", "ubuntu22.04": "3.10", "ubuntu24.04": "3.12",
    "debian10": "3.7", "debian11": "3.9", "debian12": "3.11", "debian13": "3.13",
}  # fmt: skip
"""Version of the package python3 in each release of a distribution; source: their package archives."""
CODENAMES = {
    "debian10": "buster", "debian11": "bullseye", "debian12": "bookworm", "debian13": "trixie",
    "ubuntu20.04": "focal", "ubuntu22.04": "jammy", "ubuntu24.04": "noble",
}  # fmt: skip
REBUILDS_OF_RHEL = ("centos", "rocky", "almalinux", "ol")
"""Distributions with the release numbers and libraries of RHEL."""
_RELEASES = {  # existing ones, and room for the next
    "ubuntu": tuple(f"{year:02}.{month}" for year in range(10, 29) for month in ("04", "10")),
    "debian": tuple(map(str, range(7, 16))),
    **{name: tuple(map(str, range(6, 13))) for name in ("rhel", *REBUILDS_OF_RHEL)},
    "amzn": ("1", "2", "2018", "2023", "2025", "2027"),
    "fedora": tuple(map(str, range(20, 60))),
    "sles": tuple(map(str, range(11, 18))),
    "opensuse-leap": ("15", "16"),
    "alpine": ("3",),
    **dict.fromkeys(("linuxmint", "pop", "kali", "raspbian", "gentoo", "nixos", "arch", "manjaro", "mariner", "azurelinux"), ()),
    **dict.fromkeys(
        ("photon", "kylin", "openeuler", "anolis", "tencentos", "wolfi", "cos", "flatcar", "opensuse-tumbleweed", "rhivos"), ()
    ),
}
"""First number of each release, by distribution; both numbers for Ubuntu; empty = any number."""
OLDEST_OF_UV = (3, 8)
"""Oldest Python that uv 0.7 and newer download."""


def glibc_of(distribution: str, release: str) -> str | None:
    """C library of a release of a distribution; None if unknown."""
    name = "rhel" if distribution in REBUILDS_OF_RHEL else distribution
    return _GLIBC_OF.get(f"{name}{release}") or _GLIBC_OF.get(f"{name}{release.partition('.')[0]}")


def split_os(text: str) -> tuple[str, str]:
    """Distribution and release as in os-release, ("ubuntu", "22.04") for `ubuntu22.04`, `Ubuntu 22.04` or `ubuntu2204`.

    Raise UsageError if the text names none.
    """
    found = re.fullmatch(_OS, text.strip().lower())
    if found is None or found[2] is None:
        raise UsageError(
            f"--os {text!r} is not a distribution with its release",
            code="option-os",
            hint="for example ubuntu22.04, debian12, rocky9 or amzn2023",
        )
    distribution = _DISTRIBUTIONS.get(found[1], found[1])
    release = found[2]
    if distribution == "ubuntu" and len(release) == 4 and release.isdigit():
        release = f"{release[:2]}.{release[2:]}"
    return distribution, release


def refuse_unknown_release(text: str, distribution: str, release: str) -> None:
    """Reject a distribution or release that does not exist, suggesting the nearest; raises UsageError."""
    from difflib import get_close_matches

    known = _RELEASES.get(distribution)
    number = release if distribution == "ubuntu" else release.partition(".")[0]
    if known is not None and (not known or number in known):
        return
    names = get_close_matches(distribution, _RELEASES, n=1, cutoff=0.7)
    releases = [release for release in _GLIBC_OF if release.startswith(names[0])] if names else []
    near = get_close_matches(f"{names[0]}{release}", releases, n=2, cutoff=0.7) or releases[-2:] if names else []
    what = f"{distribution} has no release {release}" if known is not None else f"no distribution is called {distribution!r}"
    hint = did_you_mean(near) or "for another distribution, state its C library instead: --glibc 2.35"
    raise UsageError(f"--os {text!r}: {what}", code="option-os", hint=hint)
