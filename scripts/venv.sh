# Make .venv in the checkout and keep it up to date. Sourced by the scripts beside it, after
# `self` is set to the path of the calling script.
#
#   use_venv EXTRA    afterwards "$venv" has the package, editable, with EXTRA: base, demo or dev
#
# Nothing is printed, and no pip is started, while pyproject.toml stays what it was.
# shellcheck shell=sh

root=$(CDPATH='' cd -- "$(dirname -- "$self")/.." && pwd -P) || exit 1
venv=$root/.venv

say() { printf '%s\n' "$*" >&2; }

fail() {
    say "$@"
    exit 1
}

# A name on the PATH may be a shim of a version that is not installed, so each is run.
# Sets `python`; PYTHON names one to be tried first.
find_python() {
    without_venv=
    for python in ${PYTHON:+"$PYTHON"} python3.14 python3.13 python3.12 python3.11 python3 python; do
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 || continue
        # Debian has the standard library's venv without what it needs, in a package of its own.
        "$python" -c 'import venv, ensurepip' >/dev/null 2>&1 && return
        without_venv=${without_venv:-$python}
    done
    if [ -n "$without_venv" ]; then
        version=$("$without_venv" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        fail "$without_venv cannot make virtual environments: its module ensurepip is missing." \
            "On Debian and Ubuntu: apt install python$version-venv"
    fi
    fail "Python 3.11 or newer is needed, and none was found on the PATH." \
        "Install one (Debian and Ubuntu: apt install python3 python3-venv), or name one: PYTHON=/path/to/python $self"
}

# Whether EXTRA is installed as pyproject.toml has it now. The larger extras hold the smaller.
# The path is part of the stamp because an editable install and its script name it.
is_installed() {
    [ -x "$venv/bin/python" ] || return 1
    case $1 in
    base) set -- base demo dev ;;
    demo) set -- demo dev ;;
    esac
    for extra; do
        [ -f "$venv/installed-$extra" ] || continue
        read -r installed <"$venv/installed-$extra" && [ "$installed" = "$stamp" ] && return
    done
    return 1
}

use_venv() {
    stamp="$(cksum <"$root/pyproject.toml") $root"
    is_installed "$1" && return
    # Two first starts at once: the second waits, and then finds the work done.
    if command -v flock >/dev/null 2>&1; then
        exec 9<"$root/pyproject.toml"
        flock 9
        is_installed "$1" && exec 9<&- && return
    fi
    # What an interrupted start or a removed Python left behind is made anew.
    if ! "$venv/bin/python" -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        find_python
        say "Making .venv with $("$python" --version 2>&1) ..."
        rm -rf -- "$venv"
        "$python" -m venv "$venv" || fail "$python could not make $venv; the lines above say why."
    fi
    case $1 in
    base) what=. && say "Installing compaction-proxy into .venv ..." ;;
    *) what=.[$1] && say "Installing compaction-proxy[$1] into .venv, about 400 MB; this takes a minute or two ..." ;;
    esac
    # A stamp that does not fit any more must not fit again when pyproject.toml is changed back.
    rm -f -- "$venv"/installed-*
    (cd -- "$root" && "$venv/bin/python" -m pip install -qq --disable-pip-version-check --editable "$what") ||
        fail "Installing failed; the lines above say why. Once that is mended, start this again."
    printf '%s\n' "$stamp" >"$venv/installed-$1"
    # An open lock would go on to whatever is started next.
    { exec 9<&-; } 2>/dev/null
}
