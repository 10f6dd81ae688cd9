#!/bin/sh
# Installs the binary `asynclane` of a release, after its checksum was verified:
#
#   curl -LsSf https://github.com/OWNER/NAME/releases/latest/download/install.sh | sh
#
# Environment variables:
#   ASYNCLANE_VERSION       such as 0.1.0; default: the newest release
#   ASYNCLANE_INSTALL_DIR   default: $HOME/.local/bin
#   ASYNCLANE_TARGET        such as x86_64-unknown-linux-musl; default: what fits this machine
#   ASYNCLANE_REPOSITORY    https://github.com/OWNER/NAME; a release's own script has it
#   ASYNCLANE_DOWNLOAD_URL  a folder with the files of a release, such as a mirror of it
set -eu

repository="${ASYNCLANE_REPOSITORY:-}"

fail() {
  echo "asynclane: $*" >&2
  exit 1
}

# The target of this machine. A C library older than 2.17, or another one than GNU's, gets the
# statically linked binary.
target() {
  case "$(uname -m)" in
    x86_64 | amd64) machine=x86_64 ;;
    aarch64 | arm64) machine=aarch64 ;;
    *) fail "there is no binary for the processor $(uname -m)" ;;
  esac
  case "$(uname -s)" in
    Linux) ;;
    Darwin)
      echo "$machine-apple-darwin"
      return
      ;;
    *) fail "there is no binary for $(uname -s)" ;;
  esac
  libc="$(getconf GNU_LIBC_VERSION 2>/dev/null || true)"
  minor="${libc#glibc 2.}"
  case "$minor" in
    '' | *[!0-9.]*) echo "$machine-unknown-linux-musl" ;;
    *)
      if [ "${minor%%.*}" -ge 17 ]; then
        echo "$machine-unknown-linux-gnu"
      else
        echo "$machine-unknown-linux-musl"
      fi
      ;;
  esac
}

# The folder of the release.
address() {
  if [ -n "${ASYNCLANE_DOWNLOAD_URL:-}" ]; then
    echo "${ASYNCLANE_DOWNLOAD_URL%/}"
  elif [ -z "$repository" ]; then
    fail 'set ASYNCLANE_REPOSITORY to the address of the repository'
  elif [ -n "${ASYNCLANE_VERSION:-}" ]; then
    echo "$repository/releases/download/v${ASYNCLANE_VERSION#v}"
  else
    echo "$repository/releases/latest/download"
  fi
}

# download URL FILE
download() {
  if command -v curl >/dev/null; then
    curl --location --silent --show-error --fail --retry 3 --output "$2" "$1"
  elif command -v wget >/dev/null; then
    wget --quiet --output-document="$2" "$1"
  else
    fail 'curl or wget is needed'
  fi || fail "cannot download $1"
}

# checksum FILE
checksum() {
  if command -v sha256sum >/dev/null; then
    sha256sum "$1"
  elif command -v shasum >/dev/null; then
    shasum -a 256 "$1"
  else
    fail 'sha256sum or shasum is needed'
  fi | cut -d ' ' -f 1
}

# The whole script is read before this runs, so a download that breaks off installs nothing.
main() {
  to="${ASYNCLANE_INSTALL_DIR:-${HOME:?}/.local/bin}"
  name="asynclane-${ASYNCLANE_TARGET:-$(target)}.tar.gz"
  from="$(address)"
  work="$(mktemp -d)"
  trap 'rm -rf "$work"' EXIT
  download "$from/SHA256SUMS" "$work/SHA256SUMS"
  download "$from/$name" "$work/$name"
  # A line has the sum, two characters, and the name.
  expected="$(awk -v name="$name" '$2 == name || $2 == "*" name { print $1 }' "$work/SHA256SUMS")"
  found="$(checksum "$work/$name")"
  [ -n "$expected" ] || fail "SHA256SUMS does not list $name"
  [ "$found" = "$expected" ] || fail "$name has the checksum $found, SHA256SUMS says $expected"
  mkdir "$work/unpacked"
  tar -xzf "$work/$name" -C "$work/unpacked"
  set -- "$work/unpacked"/*/asynclane
  [ -f "$1" ] || fail "$name has no binary"
  "$1" --version >"$work/version" || fail "the binary does not run on this machine"
  mkdir -p "$to"
  # A rename, so that a running server keeps its file.
  cp "$1" "$to/.asynclane.new"
  chmod 755 "$to/.asynclane.new"
  mv -f "$to/.asynclane.new" "$to/asynclane"
  echo "installed $(cat "$work/version") in $to"
  case ":$PATH:" in
    *":$to:"*) ;;
    *) echo "$to is not in PATH" ;;
  esac
}

main "$@"
