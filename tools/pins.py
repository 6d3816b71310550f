"""The pinned versions, worked out from pyproject.toml and from what pip installed; `tools/constraints.sh` writes them down.

python tools/pins.py floors             the lowest version of each dependency that pyproject.toml allows
python tools/pins.py merge 3.12 A B     the pins of A; where B, of Python 3.12 and later, has another version, both

Both print lines for a constraints file of pip's.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
TOOLS = ("tests", "dev")
"""The extras whose own entries are tools of ours, for which the newest version is good enough."""
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(\[[^\]]*\])?(?P<bounds>[^;]*)")
_FLOOR = re.compile(r">=\s*(?P<version>[\w.]+)")
_PIN = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[^ ;]+)")


def normal(name: str) -> str:
    """Return the one spelling of a package's many."""
    return re.sub(r"[-_.]+", "-", name).lower()


def floors(pyproject: Path = PYPROJECT) -> dict[str, str]:
    """Return the lowest version that is supported of whatever outlast needs or works with, by normal names.

    Raises LookupError for a dependency that has none.
    """
    project = tomllib.loads(pyproject.read_text())["project"]
    extras: Mapping[str, list[str]] = project["optional-dependencies"]
    lists = [project["dependencies"], *(entries for extra, entries in extras.items() if extra not in TOOLS)]
    found: dict[str, str] = {}
    for entry in (entry for entries in lists for entry in entries):
        requirement = _REQUIREMENT.match(entry)
        assert requirement is not None, entry
        if (name := normal(requirement["name"])) == project["name"]:
            continue
        floor = _FLOOR.search(requirement["bounds"])
        if floor is None:
            raise LookupError(f"pyproject.toml has no lowest version for {entry!r}: write {name}>=...")
        found[name] = floor["version"]
    return found


def pins(text: str) -> dict[str, str]:
    """Return the versions that a constraints file names, by normal names."""
    return {normal(pin["name"]): pin["version"] for pin in map(_PIN.match, text.splitlines()) if pin}


def merged(later: str, pinned: str, pinned_later: str) -> Iterator[str]:
    """Yield lines that hold on every Python: a pin, or one before Python `later` and one from there on."""
    before, after = pins(pinned), pins(pinned_later)
    for line in pinned.splitlines():
        name = line.partition("==")[0]
        other = after.pop(normal(name), None)
        if other == before[normal(name)]:
            yield line
            continue
        yield f'{line}; python_version < "{later}"'
        if other is not None:
            yield f'{name}=={other}; python_version >= "{later}"'
    for name, version in after.items():
        yield f'{name}=={version}; python_version >= "{later}"'


def main(arguments: list[str]) -> None:
    match arguments:
        case ["floors"]:
            lines = [f"{name}=={version}" for name, version in sorted(floors().items())]
        case ["merge", later, pinned, pinned_later]:
            lines = list(merged(later, Path(pinned).read_text(), Path(pinned_later).read_text()))
        case _:
            sys.exit(__doc__)
    print("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
