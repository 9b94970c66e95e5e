"""The packages of a lock as a CycloneDX document, made by its library (the extra `sbom`)."""

from __future__ import annotations

from collections.abc import Mapping

from cudnn_resolve.errors import WorldError
from cudnn_resolve.locking.model import Lock, files_of, version_of


def render(lock: Lock, debs: Mapping[str, tuple[str, str, str]]) -> str:
    """The document as JSON; WorldError where the library is not installed.

    `debs` are the packages of the system that lie beside the lock: file to name, version and SHA-256.
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
    for package in lock.packages:
        digests = sorted({one.hashes["sha256"] for one in files_of(package) if "sha256" in one.hashes})
        purl = PackageURL(type="pypi", name=package.name, version=version_of(package))
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=one) for one in digests]
        components[str(purl)] = Component(name=package.name, version=version_of(package), purl=purl, bom_ref=str(purl), hashes=hashes)
    there = {(name, version) for name, version, _ in debs.values()}
    apt = {(one.name, one.version) for stack in lock.stacks for one in stack.apt} - there
    for file, name, version, digest in (*((file, *one) for file, one in sorted(debs.items())), *(("", *one, "") for one in sorted(apt))):
        arch = {"arch": file.removesuffix(".deb").rpartition("_")[2]} if file else None
        purl = PackageURL(type="deb", name=name, version=version, qualifiers=arch)
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest)] if digest else []
        components[str(purl)] = Component(name=name, version=version, purl=purl, bom_ref=str(purl), hashes=hashes)
    return str(JsonV1Dot5(Bom(components=components.values())).output_as_string(indent=1)) + "\n"
