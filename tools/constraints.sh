#!/bin/sh
# Writes constraints.txt from a new environment that holds the latest versions of our dependencies and nothing else.
set -eu
cd "$(dirname "$0")/.."
environment=$(mktemp -d)
trap 'rm -rf "$environment"' EXIT
"${PYTHON:-python3}" -m venv "$environment"
"$environment/bin/python" -m pip install --quiet --disable-pip-version-check --no-input -e '.[dev]'
{
    echo '# The versions that development, tests and figures were tried with. `make constraints` writes this file anew.'
    # Names and versions only: where a package came from is each machine's own affair.
    "$environment/bin/python" -m pip freeze --exclude-editable | grep -E '^[A-Za-z0-9._-]+==[^ ]+$'
} >constraints.txt.new
mv constraints.txt.new constraints.txt
