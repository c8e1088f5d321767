"""Whether a vulnerability is known in what constraints.txt pins: asks PyPI's service by pip-audit.

Exit status 1 where one is known, 3 where the service could not be asked, with one line that says so.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ANSWER_TIMEOUT_S = 5
WHOLE_TIMEOUT_S = 180
KNOWN, NOT_ASKED = 1, 3


def main() -> int:
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(ROOT / "constraints.txt"), "--no-deps"]
    command += ["--disable-pip", "--progress-spinner", "off", "--format", "json"]
    command += ["--timeout", str(ANSWER_TIMEOUT_S)]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=WHOLE_TIMEOUT_S, check=False)
        found = json.loads(asked.stdout)["dependencies"]
    except subprocess.TimeoutExpired:
        return not_asked(f"no answer within {WHOLE_TIMEOUT_S} s")
    except (ValueError, KeyError):
        return not_asked((asked.stderr.strip().splitlines() or ["pip-audit said nothing"])[-1][:200])
    return judged(found)


def judged(found: Sequence[dict[str, Any]]) -> int:
    """Print what is known of the packages, a line for each vulnerability, and return the exit status."""
    audited = [package for package in found if "skip_reason" not in package]
    if not audited:
        return not_asked("the service knows none of the packages")
    known = [(package, each) for package in audited for each in package["vulns"]]
    for package, each in known:
        fixed = ", ".join(each.get("fix_versions", ())) or "no version"
        print(
            f"audit: {package['name']} {package['version']}: {each['id']}, fixed in {fixed}", file=sys.stderr
        )
    print(f"audit: {len(audited)} of {len(found)} packages looked up, {len(known)} vulnerabilities known")
    return KNOWN if known else 0


def not_asked(reason: str) -> int:
    print(f"audit: NOT DONE, known vulnerabilities could not be looked up: {reason}", file=sys.stderr)
    return NOT_ASKED


if __name__ == "__main__":
    sys.exit(main())
