#!/bin/sh
# Runs the suite in another release of Debian: on its Python, its PostgreSQL, its MariaDB and its PgBouncer. Needs root and
# debootstrap. The release's own root is made once and kept in $OUTLAST_ROOTS; what is tried is the last commit.
#   [ARGS="ARGUMENTS OF PYTEST"] sh tools/elsewhere.sh RELEASE       sid, or trixie
set -eu
cd "$(dirname "$0")/.."
release=${1:-}
root=${OUTLAST_ROOTS:-/var/tmp/outlast-roots}/$release

fail() { echo "elsewhere: $*" >&2; exit 1; }

# What is mounted for a command is gone with it: the mounts are the command's own.
inside() {
    unshare --mount sh -euc '
        mount -t proc proc "$0/proc"
        mount --rbind /dev "$0/dev"
        for file in /etc/resolv.conf /etc/hosts; do
            touch "$0$file"
            mount --bind "$file" "$0$file"
        done
        exec chroot "$0" env -u MAKEFLAGS -u PYTHONPATH -u TMPDIR -u VIRTUAL_ENV LC_ALL=C.UTF-8 "$@" </dev/null' "$root" "$@"
}

install_packages() {
    inside env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "$@" >/dev/null
}

case $release in
    '' | *[!a-z]*) fail "name a release of Debian: make elsewhere RELEASE=sid" ;;
esac
[ "$(id -u)" = 0 ] || fail "only root may make the root of another system"
command -v debootstrap >/dev/null || fail "debootstrap is not here; on Debian and Ubuntu: apt-get install debootstrap"
unshare --mount true || fail "no mounts are allowed here, and the suite needs a /proc and a /dev in the root it runs in"

if [ ! -e "$root/made" ]; then
    archive=$(python3 -m tools.debian archive)
    rm -rf --one-file-system "$root"
    mkdir -p "$root"
    debootstrap --variant=minbase --include=ca-certificates "$release" "$root" "$archive" >&2
    # Nothing that is installed may start a server: the tests start those they need.
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod +x "$root/usr/sbin/policy-rc.d"
    touch "$root/made"
fi
# A mirror may be behind its time; what it holds is signed all the same.
inside apt-get -qq -o Acquire::Check-Valid-Until=false update
install_packages python3 python3-dev python3-venv
inside python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "the Python of $release is older than 3.11; its PostgreSQL may serve all the same, with the Python that is here:
    OUTLAST_POSTGRES_BIN=\$(python3 -m tools.debian postgresql $release) make test"
install_packages g++ git iproute2 make mariadb-server openssl pgbouncer postgresql procps

# Where pip finds packages is this machine's affair, in there as out here.
for file in /etc/pip.conf "$HOME/.config/pip/pip.conf" /etc/ssl/certs/ca-certificates.crt; do
    [ ! -e "$file" ] || install -D -m 644 "$file" "$root$file"
done
[ -z "$(git status --porcelain --untracked-files=no)" ] || echo "elsewhere: what is not committed is not tried" >&2
[ -e "$root/outlast" ] || git init --quiet "$root/outlast"
git -C "$root/outlast" fetch --quiet --depth 1 "file://$PWD" HEAD
git -C "$root/outlast" checkout --quiet --force --detach FETCH_HEAD

inside sh -c 'python3 --version; dpkg-query -W postgresql mariadb-server pgbouncer'
inside make --no-print-directory -C /outlast test ARGS="${ARGS:-}"
