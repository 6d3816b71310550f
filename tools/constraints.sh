#!/bin/sh
# Writes constraints.txt and constraints-lowest.txt anew. The first holds the latest versions of our dependencies and nothing
# else, on Python 3.11 and on the later one where something needs that; the second the lowest that pyproject.toml allows.
set -eu
cd "$(dirname "$0")/.."
later=3.12
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python() { sh tools/python.sh "$1" || { echo "constraints: needs Python $1" >&2; exit 1; }; }

# freeze PYTHON EXTRA [OPTIONS OF PIP]: prints what an environment of its own then holds.
freeze() {
    "$1" -m venv --clear "$folder/environment"
    extra=$2
    shift 2
    "$folder/environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-input "$@" -e ".[$extra]" >&2
    # Names and versions only: where a package came from is each machine's own affair.
    "$folder/environment/bin/python" -m pip freeze --exclude-editable | grep -E '^[A-Za-z0-9._-]+==[^ ]+$'
}

earliest=$(python 3.11)
freeze "$earliest" dev >"$folder/earliest"
freeze "$(python $later)" dev >"$folder/later"
{
    echo '# The versions that development, tests and figures were tried with. `make constraints` writes this file anew.'
    "$earliest" tools/pins.py merge $later "$folder/earliest" "$folder/later"
} >constraints.txt.new
{
    "$earliest" tools/pins.py floors
    # Click 8.5 warns of names that Typer 0.16 imports, and a warning fails a test.
    echo 'click<8.5'
} >"$folder/floors"
{
    echo '# The lowest versions that outlast supports, for `make lowest`. `make constraints` writes this file anew.'
    freeze "$earliest" tests -c "$folder/floors"
} >constraints-lowest.txt.new
mv constraints.txt.new constraints.txt
mv constraints-lowest.txt.new constraints-lowest.txt
