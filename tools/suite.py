"""The whole suite, where a test that fails once on a held-up machine does not count as one that fails.

    python -m tools.suite [ARGUMENTS OF PYTEST]

When one or two tests have failed they are run again, twelve times each and four at once, so that they are as hard pressed as
before. One that fails again fails the suite; else the last lines name what failed once, for somebody to find out why.
More than two are no accident, and fail at once.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

MOST_AGAIN: Final = 2
ROUNDS: Final = 3
AT_ONCE: Final = 4
_FAILED: Final = Path(".pytest_cache/v/cache/lastfailed")


def main(arguments: Sequence[str]) -> int:
    """Run all tests, then those that failed once more. Returns the exit code of the whole."""
    _FAILED.unlink(missing_ok=True)
    code = _start(arguments).wait()
    if code != pytest.ExitCode.TESTS_FAILED:
        return code
    failed = sorted(json.loads(_FAILED.read_text()))
    if len(failed) > MOST_AGAIN:
        return code
    for _ in range(ROUNDS):
        # Without the cache, or they would write over one another's.
        again = [_start(["-q", "-p", "no:cacheprovider", *failed], stdout=subprocess.PIPE) for _ in range(AT_ONCE)]
        outputs = [process.communicate()[0] for process in again]
        for process, output in zip(again, outputs, strict=True):
            if process.returncode != 0:
                print(output, f"These failed, and once more when they were run again: {', '.join(failed)}", sep="\n")
                return code
    print(
        f"These failed once and then passed {ROUNDS * AT_ONCE} times; find out what held them up:",
        *failed,
        sep="\n    ",
    )
    return 0


def _start(arguments: Sequence[str], *, stdout: int | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "pytest", *arguments], stdout=stdout, text=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
