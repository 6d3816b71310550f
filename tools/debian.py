"""Packages of another release of Debian than this machine's, unpacked into a folder of their own: nothing is installed, and
no root is needed. They come from the archive that this machine's own sources name.

    python -m tools.debian archive                print that archive
    python -m tools.debian postgresql RELEASE     print a folder with the `initdb` and `postgres` of an older release, for
                                                  OUTLAST_POSTGRES_BIN
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

WRAPPER = """\
#!/bin/sh
LD_LIBRARY_PATH={libraries} exec {program} "$@"
"""


def archive(sources: Path = Path("/etc/apt")) -> str | None:
    """The Debian archive that this machine's own sources name, where it has the means to take from it."""
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return None
    lines: list[str] = []
    for place in (sources / "sources.list", *(sources / "sources.list.d").glob("*")):
        with contextlib.suppress(OSError):
            lines += place.read_text().splitlines()
    for line in lines:
        if line.startswith(("deb ", "URIs:")):
            found = re.search(r"(https?|file):/\S*/debian/?(?=\s|$)", line)
            if found:
                return found[0]
    return None


def unpack(release: str, package: str, root: Path, *, source: str, without: Sequence[str] = ()) -> None:
    """Unpack a package of a release, with all it needs but what is named, into `root`; once, whoever asks."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (root / "complete").exists():
            return
        print(f"unpacking {package} of Debian's {release} into {root}", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="outlast-apt-") as folder:
            for file in _fetch(release, package, Path(folder), source):
                if file.name.partition("_")[0] not in without:
                    subprocess.run(["dpkg-deb", "-x", str(file), str(root)], check=True)
        (root / "complete").touch()


def _fetch(release: str, package: str, apt: Path, source: str) -> list[Path]:
    for part in ("lists/partial", "archives/partial", "parts"):
        (apt / part).mkdir(parents=True)
    (apt / "status").touch()
    (apt / "parts" / "one.sources").write_text(
        f"Types: deb\nURIs: {source}\nSuites: {release}\nComponents: main\nTrusted: yes\n"
    )
    options = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": apt / "parts",
        "Dir::State": apt,
        "Dir::State::status": apt / "status",
        "Dir::State::lists": apt / "lists",
        "Dir::Cache": apt,
        "Dir::Cache::archives": apt / "archives",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        # A mirror may be behind its time.
        "Acquire::Check-Valid-Until": "false",
        # No lock of the machine's own package system is asked for.
        "Debug::NoLocking": "true",
    }
    apt_get = ["apt-get", "-qq", *(part for name, value in options.items() for part in ("-o", f"{name}={value}"))]
    for command in ([*apt_get, "update"], [*apt_get, "-y", "-d", "install", package]):
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    return sorted((apt / "archives").glob("*.deb"))


def older_postgres(release: str) -> Path:
    """A folder with the programs of an older release's PostgreSQL, which run with this machine's C library: a later one
    serves what was built for an earlier, never the other way round."""
    source = archive()
    if source is None:
        sys.exit("Packages of another Debian are to be had on Debian alone: apt-get, and its sources, are not here.")
    root = Path(f"/var/tmp/outlast-postgresql-{release}-{os.geteuid()}")
    unpack(release, "postgresql", root, source=source, without=("libc6",))
    libraries = sorted({str(file.parent) for file in root.glob("**/lib/*-linux-gnu/lib*.so*")})
    (installed,) = root.glob("usr/lib/postgresql/*/bin")
    wrappers = root / "bin-for-this-machine"
    wrappers.mkdir(exist_ok=True)
    for name in ("initdb", "postgres"):
        new = wrappers / f"{name}.{os.getpid()}"
        new.write_text(WRAPPER.format(libraries=":".join(libraries), program=installed / name))
        new.chmod(0o755)
        new.replace(wrappers / name)  # Another process may be calling the one that is there.
    return wrappers


def main(arguments: list[str]) -> None:
    match arguments:
        case ["archive"]:
            print(archive() or sys.exit("This machine's sources name no archive of Debian's."))
        case ["postgresql", release]:
            print(older_postgres(release))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
