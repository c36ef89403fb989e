#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds a Debian package: what install.sh installs, with all dependencies included, for this release of Debian and the
# architecture of this machine.
set -eu

usage() {
  cat <<'END'
Usage: build.sh [--wheel FILE | --source DIR] [--output DIR] [--revision N]

  --wheel FILE, --source DIR   what to pack, as for install.sh
  --output DIR                 where the package goes; made if it is missing [default: .]
  --revision N                 tells apt this build of a version from an earlier one [default: 1]

PYTHON names the interpreter, which the package will depend on [default: /usr/bin/python3]; DEBFULLNAME and DEBEMAIL name
the package's maintainer.
END
}

fail() { printf 'build.sh: %s\n' "$*" >&2; exit "${status:-1}"; }

output=.
revision=1
what=''
value=''
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --output | --revision | --wheel | --source) [ $# -gt 1 ] || { status=2; fail "$1 needs a value"; } ;;
    *) status=2; fail "unknown: $1" ;;
  esac
  case $1 in --output) output=$2 ;; --revision) revision=$2 ;; *) what=$1 value=$2 ;; esac
  shift 2
done
case $revision in '' | *[!0-9A-Za-z.+~]*) status=2; fail "--revision: letters, digits, ., + and ~" ;; esac
command -v dpkg-deb >/dev/null || fail "dpkg-deb is not here"
# The interpreter with its version: the packages inside work with no other.
python=$(readlink -f "${PYTHON:-/usr/bin/python3}")
case $python in
  /usr/bin/python3.*) ;;
  *) fail "$python is not Debian's: PYTHON=/usr/bin/python3 names it" ;;
esac
mkdir -p "$output" || fail "--output: no package can be written there"

here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree
mkdir -m 755 "$tree"
umask 022

PYTHON=$python "$here/../install.sh" install --root "$tree" ${what:+"$what" "$value"}

# A package installs its unit and program outside the administrator's folders.
mkdir -p "$tree/lib/systemd/system" "$tree/usr/bin" "$tree/usr/share/zsh" "$tree/DEBIAN"
mv "$tree/etc/systemd/system/vllm-watch.service" "$tree/lib/systemd/system/"
mv "$tree/usr/local/bin/vllm-watch" "$tree/usr/bin/"
mv "$tree/usr/local/share/zsh/site-functions" "$tree/usr/share/zsh/vendor-completions"
rmdir "$tree/usr/local/share/zsh"
mv "$tree/usr/local/share"/* "$tree/usr/share/"
rmdir -p "$tree/etc/systemd/system" "$tree/usr/local/bin" "$tree/usr/local/share" 2>/dev/null || true
# From where pip installed the wheel is of no use elsewhere, and the package compiles when it is installed.
find "$tree/opt" -name direct_url.json -delete
find "$tree/opt" -name __pycache__ -prune -exec rm -r {} +

release=$(basename "$(echo "$tree"/opt/vllm-watch/releases/*)")
version=${release%%-*}-$revision
maintainer="${DEBFULLNAME:-$(id -un)} <${DEBEMAIL:-$(id -un)@$(hostname)}>"  # Who builds it, as for any package of one's own.
documents=$tree/usr/share/doc/vllm-watch
mkdir -p "$documents"
cat >"$documents/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Source: https://github.com/vllm-watch/vllm-watch
Comment: Each Python package under /opt/vllm-watch has its license in its folder *.dist-info.

Files: *
Copyright: 2026 The authors of vllm-watch
License: Apache-2.0
 The text of the license is in /usr/share/common-licenses/Apache-2.0.
END
gzip -9n >"$documents/changelog.Debian.gz" <<END
vllm-watch ($version) unstable; urgency=medium

  * What is new: https://github.com/vllm-watch/vllm-watch/blob/main/CHANGELOG.md

 -- $maintainer  $(date --utc --rfc-email --date "@${SOURCE_DATE_EPOCH:-$(date +%s)}")
END
cat >"$tree/DEBIAN/control" <<END
Package: vllm-watch
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: $maintainer
Depends: $(basename "$python"), libc6
Section: net
Priority: optional
Homepage: https://github.com/vllm-watch/vllm-watch
Installed-Size: $(du -sk "$tree/opt" | cut -f 1)
Description: watches vLLM servers
 A daemon that follows a vLLM server's log, reads its /metrics, and shows one
 set of Prometheus series with stable names. The Python packages that it needs
 are inside, under /opt/vllm-watch.
END
printf '%s\n' /etc/vllm-watch/vllm-watch.yml /etc/default/vllm-watch >"$tree/DEBIAN/conffiles"
for script in postinst prerm postrm; do
  install -m 755 "$here/$script" "$tree/DEBIAN/$script"
done

package=$output/vllm-watch_${version}_$(dpkg --print-architecture).deb
dpkg-deb --root-owner-group --build "$tree" "$package"
