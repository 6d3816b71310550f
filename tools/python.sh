#!/bin/sh
# Prints the command of another Python: of a version that is installed for PATH or pyenv, or of a path. Fails without one.
#   sh tools/python.sh 3.12
set -eu

works() { [ "$("$1" -c 'print("here")' 2>/dev/null </dev/null)" = here ]; }

name=$1
case $name in [0-9]*) name=python$name ;; esac
if works "$name"; then
    command -v "$name"
elif command -v pyenv >/dev/null; then
    for version in $(pyenv whence "$name" 2>/dev/null); do
        found=$(pyenv prefix "$version")/bin/$name
        if works "$found"; then echo "$found"; exit; fi
    done
    exit 1
else
    exit 1
fi
