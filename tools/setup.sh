#!/bin/sh
# Makes an environment with all that the project's commands need. Needs Python 3.11 or later; a second call only updates.
#   sh tools/setup.sh [EXTRAS [FOLDER [CONSTRAINTS]]]
#       EXTRAS of pyproject.toml, "dev" unless told; into .venv, by constraints.txt, from $PYTHON or the first that serves
set -eu
cd "$(dirname "$0")/.."
extras=${1:-dev}
folder=${2:-.venv}
constraints=${3:-constraints.txt}

say() { echo "setup: $*" >&2; }

is_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null </dev/null; }

find_python() {
    for python in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if is_recent "$python"; then echo "$python"; return; fi
    done
    say "no Python 3.11 or later on PATH; install one or name it: make setup PYTHON=/path/to/python3"
    exit 1
}

# Debian ships Python without the means to make an environment.
install_venv_package() {
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        say "installing the Debian package python3-venv"
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq </dev/null && apt-get install -y -qq python3-venv </dev/null >/dev/null
    else
        say "$1 cannot make an environment; on Debian and Ubuntu: apt-get install python3-venv"
        exit 1
    fi
}

if ! "$folder/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    "$python" -c 'import ensurepip, venv' 2>/dev/null || install_venv_package "$python"
    say "making $folder with $("$python" --version)"
    "$python" -m venv --clear "$folder" </dev/null
fi
say "installing the packages named in $constraints"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-input -c "$constraints" -e ".[$extras]" </dev/null
