"""Virtual environments in which rivals are kept, each in its own, under ``NG_CACHE_DIR/bench``."""

from __future__ import annotations

import os
import subprocess
import venv
from dataclasses import dataclass
from pathlib import Path

from gateway.errors import CommandError

INSTALL_S = 1_800.0


@dataclass(frozen=True, slots=True)
class Package:
    """What pip is asked for, the file of the environment that tells it is there, and what must not stay."""

    name: str
    requirement: str
    sign: str
    unwanted: tuple[str, ...] = ()


def find_python(name: str, given: Path | None) -> Path | None:
    """Return the interpreter that has the package: as given, else of the folder that --install fills."""
    if given is not None:
        if not given.exists():
            raise CommandError(f"{given} is not there")
        return given
    python = _folder(name) / "bin" / "python"
    return python if python.exists() else None


def install(package: Package) -> None:
    """Make a virtual environment for the package where there is none. Raises CommandError."""
    folder = _folder(package.name)
    if any(folder.glob(package.sign)):
        return
    venv.create(folder, with_pip=True, clear=True)
    python = folder / "bin" / "python"
    _pip(python, package, "install", "--quiet", package.requirement)
    if package.unwanted:
        _pip(python, package, "uninstall", "--quiet", "--yes", *package.unwanted)


def _pip(python: Path, package: Package, *arguments: str) -> None:
    command = [str(python), "-m", "pip", *arguments]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        raise CommandError(f"{package.requirement} was not installed within {INSTALL_S:.0f} s") from None
    if done.returncode:
        raise CommandError(f"{package.requirement} cannot be installed: {done.stderr.strip()[-500:]}")


def _folder(name: str) -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("NG_CACHE_DIR") or Path(base) / "narrative-gravity") / "bench" / name
