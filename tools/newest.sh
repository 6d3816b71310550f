#!/bin/sh
# Makes the environment of another Python with the versions of constraints.txt, and prints its python.
#   sh tools/newest.sh PYTHON       3.12, a command or a path
set -eu
cd "$(dirname "$0")/.."
if [ -z "${1:-}" ] || ! python=$(sh tools/python.sh "$1"); then
    echo "newest: there is no Python '${1:-}' on this machine; name a version, a command or a path: make newest PYTHON=3.12" >&2
    exit 1
fi
folder=.newest-venv/$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
PYTHON=$python sh tools/setup.sh tests "$folder"
echo "$folder/bin/python"
