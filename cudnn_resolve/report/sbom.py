"""Render the packages of a lock as a CycloneDX document, with the library of the extra `sbom`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cudnn_resolve.errors import WorldError
from cudnn_resolve.locking.model import Lock, files_of, version_of


def render(lock: Lock, debs: Mapping[str, tuple[str, str, str]]) -> str:
    """Return the document as JSON; raises WorldError if the library is not installed.

    `debs` are the system packages stored beside the lock: file to name, version and SHA-256.
    """
    try:
        from cyclonedx.model import HashAlgorithm, HashType
        from cyclonedx.model.bom import Bom
        from cyclonedx.model.component import Component
        from cyclonedx.output.json import JsonV1Dot5
        from packageurl import PackageURL
    except ImportError:
        hint = "`pip install cudnn-resolve[sbom]`"
        raise WorldError("--sbom needs cyclonedx-python-lib, which is not installed", code="no-cyclonedx", hint=hint) from None

    components: dict[str, Component] = {}

    def add(purl: PackageURL, digests: Iterable[str]) -> None:
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in digests]
        components[str(purl)] = Component(name=purl.name, version=purl.version, purl=purl, bom_ref=str(purl), hashes=hashes)

    for package in lock.packages:
        digests = {file.hashes["sha256"] for file in files_of(package) if "sha256" in file.hashes}
        add(PackageURL(type="pypi", name=package.name, version=version_of(package)), sorted(digests))
    for file, (name, version, digest) in sorted(debs.items()):
        arch = file.removesuffix(".deb").rpartition("_")[2]
        add(PackageURL(type="deb", name=name, version=version, qualifiers={"arch": arch}), (digest,))
    bundled = {(name, version) for name, version, _ in debs.values()}
    pinned = {(pin.name, pin.version) for stack in lock.stacks for pin in stack.apt}
    for name, version in sorted(pinned - bundled):
        add(PackageURL(type="deb", name=name, version=version), ())
    return str(JsonV1Dot5(Bom(components=components.values())).output_as_string(indent=1)) + "\n"
