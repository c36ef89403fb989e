#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs vllm-watch as a systemd service, upgrades it, and removes it. Each step is printed before it is done.
set -eu
umask 022  # The service's user owns none of these files and must read them, whatever root's umask is.

usage() {
  cat <<'END'
Usage: install.sh install|upgrade|uninstall [OPTION]...

  install    install vllm-watch under /opt/vllm-watch, with its unit and a configuration, and start it
  upgrade    install another version; the old one stays if the new one does not start
  uninstall  remove it; configuration and checkpoint stay

  --wheel FILE    install this wheel
  --source DIR    install this source tree [default: the one that contains this script]
  --prefix DIR    where to install it [default: /opt/vllm-watch]
  --root DIR      treat DIR as /, for an image: nothing is started
  --no-start      neither start nor restart the service
  --dry-run       print what would be done
  --purge         with uninstall: also remove configuration, drop-ins and checkpoint

PYTHON names the interpreter [default: python3], 3.10 or newer. pip installs the dependencies; its own variables apply:
PIP_INDEX_URL, or PIP_NO_INDEX=1 and PIP_FIND_LINKS=DIR without a network.
Exit status: 0 done, or nothing to do; 1 it failed, and the state of the installation was printed; 2 wrong usage.
END
}

say() { printf '%s\n' "$*"; }
fail() { printf 'install.sh: %s\n' "$*" >&2; exit 1; }
misused() { printf 'install.sh: %s\n' "$*" >&2; usage >&2; exit 2; }

# Print a step, then do it.
step() {
  say "$1"
  shift
  changed=true
  $dry_run || "$@"
}

command='' root='' prefix=/opt/vllm-watch wheel='' source='' dry_run=false purge=false start=true changed=false
python=${PYTHON:-python3}
here=$(cd "$(dirname "$0")" && pwd)

while [ $# -gt 0 ]; do
  case $1 in
    install | upgrade | uninstall) [ -z "$command" ] || misused "one command at a time"; command=$1 ;;
    --root | --prefix | --wheel | --source)
      [ $# -gt 1 ] || misused "$1 needs a value"
      case $1 in --root) root=${2%/} ;; --prefix) prefix=${2%/} ;; --wheel) wheel=$2 ;; --source) source=$2 ;; esac
      shift ;;
    --dry-run) dry_run=true ;;
    --purge) purge=true ;;
    --no-start) start=false ;;
    -h | --help) usage; exit 0 ;;
    *) misused "unknown: $1" ;;
  esac
  shift
done
[ -n "$command" ] || misused "a command is missing"
[ -z "$wheel" ] || [ -z "$source" ] || misused "--wheel or --source, not both"
case $prefix in /*/*) ;; *) misused "--prefix needs a folder of its own, such as /opt/vllm-watch" ;; esac
[ -z "$root" ] || root=$(cd "$root" 2>/dev/null && pwd) || fail "--root: no such folder"

releases=$root$prefix/releases
unit=$root/etc/systemd/system/vllm-watch.service
link=$root/usr/local/bin/vllm-watch
settings=$root/etc/default/vllm-watch
configuration=$root/etc/vllm-watch
shared=$root/usr/local/share
bash_completion=$shared/bash-completion/completions/vllm-watch
zsh_completion=$shared/zsh/site-functions/_vllm-watch
fish_completion=$shared/fish/vendor_completions.d/vllm-watch.fish
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# The present state.

is_running_systemd() { [ -z "$root" ] && [ -d /run/systemd/system ]; }
installed() { if [ -L "$root$prefix/bin" ]; then basename "$(dirname "$(readlink "$root$prefix/bin")")"; fi; }

need_root() {
  [ -n "$root" ] || [ "$(id -u)" = 0 ] || fail "this needs root"
}

# An installation by other means is not touched.
need_own() {
  [ ! -e "$root/lib/systemd/system/vllm-watch.service" ] || fail "vllm-watch is installed as a package: use dpkg or apt"
  [ ! -f "$unit" ] || grep -q "^ExecStart=$prefix/bin/" "$unit" ||
    fail "vllm-watch is installed elsewhere: give the --prefix that is in the ExecStart of $unit"
}

need_python() {
  command -v "$python" >/dev/null || fail "$python: no such interpreter"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    fail "$python is too old: vllm-watch needs Python 3.10 or newer; PYTHON=/usr/bin/python3.11 names another"
  "$python" -c 'import ensurepip, venv' 2>/dev/null ||
    fail "$python cannot make virtual environments: on Debian and Ubuntu install python3-venv"
  as_nobody "$python" -I -c '' 2>/dev/null ||
    fail "only some users may run $python, and the service may not: PYTHON=/usr/bin/python3 names another"
}

# COMMAND...: run it as the user nobody, who has no more rights than the service's user; without root, as the caller.
as_nobody() {
  if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
  else
    "$@"
  fi
}

# Set $wheel to one wheel.
find_wheel() {
  if [ -z "$wheel" ]; then
    source=${source:-$(dirname "$here")}
    [ -f "$source/pyproject.toml" ] || fail "$source is not a source tree: give --wheel FILE or --source DIR"
    say "Build a wheel from $source, in another folder"
    "$python" -m venv "$work/build"
    "$work/build/bin/python" -I -m pip --disable-pip-version-check --quiet wheel --no-deps --wheel-dir "$work" "$source" ||
      fail "no wheel could be built from $source"
    wheel=$(echo "$work"/vllm_watch-*.whl)
  fi
  case $(basename "$wheel") in vllm_watch-*.whl) ;; *) fail "$wheel is not a wheel of vllm-watch" ;; esac
  [ -f "$wheel" ] || fail "$wheel: no such file"
}

# The name of a release has its version, a digest of its content, and the interpreter's version and a digest of its path:
# an environment works with that one only.
release_of_wheel() {
  version=$(basename "$wheel" | cut -d - -f 2)
  content=$(sha256sum <"$wheel" | cut -c 1-12)
  interpreter=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  path=$("$python" -c 'import os, sys; print(os.path.realpath(sys._base_executable))' | sha256sum | cut -c 1-8)
  echo "$version-$content-py$interpreter-$path"
}

# The files.

put() { # FILE TARGET
  [ -f "$2" ] && cmp -s "$1" "$2" && return
  step "Write $2" install -D -m 644 "$1" "$2"
}

put_once() { # FILE TARGET
  [ -e "$2" ] || put "$1" "$2"
}

# Callers test whether these functions succeed, and there `set -e` does not apply.

make_environment() { # FOLDER
  "$python" -m venv "$1" &&
    "$1/bin/python" -I -m pip --disable-pip-version-check --no-cache-dir --quiet install --no-compile "${wheel}[top,gpu]" &&
    # The environment is never changed, so these are not needed.
    "$1/bin/python" -I -m pip --disable-pip-version-check --quiet uninstall --yes pip setuptools 2>/dev/null &&
    rm -f "$1"/bin/activate* "$1"/bin/Activate* &&
    settle "$1" &&
    "$1/bin/python" -I -m compileall -q -s "$root" ${root:+-p /} "$1/lib"
}

settle() { # FOLDER: write its final path into its scripts; with --root it is created at another path
  sed -i "s|$root$prefix/|$prefix/|g" "$1/pyvenv.cfg" || return 1
  for script in "$1"/bin/*; do
    [ -L "$script" ] || sed -i "1s|^#!$root$prefix/|#!$prefix/|" "$script" || return 1
  done
}

program() { # RELEASE ARGUMENT...: run the command of a release, whatever path is in its scripts
  in_release=$releases/$1
  shift
  "$in_release/bin/python" "$in_release/bin/vllm-watch" "$@"
}

configured() { # the configuration's path, as the unit sees it
  path=
  [ ! -f "$settings" ] || path=$(sed -n 's/^VLLM_WATCH_CONFIG=//p' "$settings" | tail -n 1 | tr -d "\"'")
  echo "${path:-/etc/vllm-watch/vllm-watch.yml}"
}

# Whether a release starts, also as the service's user, and accepts the configuration; if not, its output is shown.
works() { # RELEASE
  program "$1" --version >"$work/said" 2>&1 || { cat "$work/said" >&2; return 1; }
  [ -n "$root" ] || as_nobody "$releases/$1/bin/vllm-watch" --version >"$work/said" 2>&1 ||
    { cat "$work/said" >&2; say "root can run it, but the service's user cannot" >&2; return 1; }
  [ -f "$root$(configured)" ] || return 0
  status=0
  program "$1" check --format json --config "$root$(configured)" >"$work/answer" 2>"$work/said" || status=$?
  # 1 is a source that cannot be read, which is not a fault of the release; but Python itself ends with it, too, and
  # then nothing is answered.
  case $status in 0 | 1) ! grep -q '^{' "$work/answer" || return 0 ;; esac
  cat "$work/said" >&2
  return 1
}

point_to() { # RELEASE
  ln -sfn "releases/$1/bin" "$root$prefix/bin.new"
  mv -T "$root$prefix/bin.new" "$root$prefix/bin"  # Atomic: the program always exists.
}

make_release() { # RELEASE
  step "Create a virtual environment in $releases/$1, and install $(basename "$wheel") there" true
  $dry_run && return
  rm -rf "${releases:?}/$1"  # Left by an interrupted run.
  install -d -m 755 "$root$prefix" "$releases"
  make_environment "$releases/$1" || { discard "$1"; fail "the installation by pip failed: nothing has changed"; }
  say "Test whether it starts and accepts $(configured)"
  works "$1" || { discard "$1"; fail "$1 does not start: nothing has changed"; }
}

discard() { # RELEASE
  say "Remove $releases/$1"
  rm -rf "${releases:?}/$1"
  rmdir "$releases" "$root$prefix" 2>/dev/null || true
}

put_completion() { # RELEASE SHELL TARGET
  if $dry_run; then  # There may be no such release, so that its script is not known.
    [ -e "$3" ] || say "Write $3"
    return
  fi
  program "$1" completion "$2" >"$work/completion"
  put "$work/completion" "$3"
}

put_files() { # RELEASE
  sed "s|/opt/vllm-watch/|$prefix/|" "$here/systemd/vllm-watch.service" >"$work/unit"
  put "$work/unit" "$unit"
  put_once "$here/vllm-watch.yml" "$configuration/vllm-watch.yml"
  put_once "$here/systemd/vllm-watch.default" "$settings"
  put_completion "$1" bash "$bash_completion"
  put_completion "$1" zsh "$zsh_completion"
  put_completion "$1" fish "$fish_completion"
  if [ "$(readlink "$link" || true)" != "$prefix/bin/vllm-watch" ]; then
    [ ! -e "$link" ] || [ -L "$link" ] || fail "$link exists and was not created by this script"
    step "Link $link to $prefix/bin/vllm-watch" mkdir -p "$(dirname "$link")"
    $dry_run || ln -sfn "$prefix/bin/vllm-watch" "$link"
  fi
}

start_service() { # start or restart it; fails if it does not become ready
  if ! is_running_systemd; then
    $changed && say "systemd does not run here: nothing is started. On the machine itself: systemctl enable --now vllm-watch"
    return 0
  fi
  $changed || return 0
  step "Make systemd read its units again" systemctl daemon-reload || return 1
  if [ "$command" = upgrade ]; then  # A stopped service stays stopped.
    ! $start || step "Restart vllm-watch, if it runs, and wait until it is ready" systemctl try-restart vllm-watch
    return
  fi
  step "Enable vllm-watch, so that it starts with the machine" systemctl --quiet enable vllm-watch || return 1
  ! $start || step "Start vllm-watch and wait until it is ready" systemctl restart vllm-watch
}

remove_other_releases() { # RELEASE
  for each in "$releases"/*; do
    [ ! -d "$each" ] || [ "$each" = "$releases/$1" ] || step "Remove $each" rm -rf "$each"
  done
}

go_to() { # RELEASE
  old=$(installed)
  if [ "$old" != "$1" ]; then
    make_release "$1"
    step "Switch $root$prefix/bin to $1" point_to "$1"
  fi
  [ ! -f "$unit" ] || cp "$unit" "$work/unit.old"
  put_files "$1"
  start_service || go_back "$1" "$old"
  $dry_run || remove_other_releases "$1"
  $changed || say "Nothing to do: $1 is installed."
}

go_back() { # RELEASE OLD
  if [ -z "$2" ] || [ "$2" = "$1" ]; then
    fail "vllm-watch does not start: see journalctl -u vllm-watch"
  fi
  step "It does not start: switch $root$prefix/bin back to $2" point_to "$2"
  put "$work/unit.old" "$unit"
  systemctl daemon-reload
  step "Restart the old release" systemctl restart vllm-watch
  discard "$1"
  fail "$1 does not start, $2 runs again: see journalctl -u vllm-watch"
}

# The commands.

do_install() {
  need_root
  need_own
  need_python
  [ -n "$(installed)" ] || [ ! -e "$root$prefix/bin" ] || fail "$root$prefix exists and was not created by this script"
  find_wheel
  release=$(release_of_wheel)
  case $command:$(installed) in
    install: | install:"$release" | upgrade:?*) go_to "$release" ;;
    install:*) fail "$(installed) is installed: use upgrade" ;;
    *) fail "nothing is installed under $root$prefix: use install" ;;
  esac
}

remove() { # PATH...
  for each in "$@"; do
    if [ -e "$each" ] || [ -L "$each" ]; then step "Remove $each" rm -rf "$each"; fi
  done
}

remove_shared() { # what shells read, and its folders, unless something else is in them
  remove "$bash_completion" "$zsh_completion" "$fish_completion"
  $dry_run || (cd "$shared" && rmdir bash-completion/completions bash-completion zsh/site-functions zsh \
    fish/vendor_completions.d fish) 2>/dev/null || true
}

do_uninstall() {
  need_root
  need_own
  if is_running_systemd && [ -f "$unit" ]; then
    step "Stop and disable vllm-watch" systemctl --quiet disable --now vllm-watch
  fi
  remove "$root/etc/systemd/system/multi-user.target.wants/vllm-watch.service" "$unit"
  [ "$(readlink "$link" || true)" != "$prefix/bin/vllm-watch" ] || remove "$link"
  [ ! -f "$bash_completion" ] || remove_shared
  if [ -d "$releases" ]; then
    remove "$root$prefix/bin" "$releases"
    $dry_run || rmdir "$root$prefix" || fail "$root$prefix contains files that this script did not create"
  fi
  if $purge; then
    remove "$configuration" "$settings" "$unit.d" "$root/var/lib/vllm-watch" "$root/var/lib/private/vllm-watch"
  elif $changed; then
    say "Configuration and checkpoint stay: --purge removes $configuration, $settings and $root/var/lib/vllm-watch"
  fi
  if is_running_systemd && $changed; then step "Make systemd read its units again" systemctl daemon-reload; fi
  $changed || say "Nothing to do: vllm-watch is not installed."
}

case $command in
  uninstall) do_uninstall ;;
  *) do_install ;;
esac
