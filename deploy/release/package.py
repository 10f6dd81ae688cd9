"""Makes the archive and the wheel of a built binary.

    package.py BINARY --target TRIPLE --out FOLDER [--sbom FILE] [--repository URL]
        [--runner COMMAND]

No step compiles: archive and wheel hold the same binary, and any build can be packaged. The same
input gives the same bytes. The binary has to run here, because it prints its completions; that of
another processor with a runner, such as `qemu-aarch64`. With
`--repository` the links of the README lead to the repository at the tag of the version; without it
they stay as they are. The wheel needs hatchling (`requirements.lock`).
"""

import argparse
import gzip
import io
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
from links import outside  # noqa: E402

# File names of completions as the shells look for them.
COMPLETIONS = {
    "bash": "asynclane.bash",
    "zsh": "_asynclane",
    "fish": "asynclane.fish",
    "elvish": "asynclane.elv",
    "powershell": "_asynclane.ps1",
}
# The oldest C library that Rust supports.
OLDEST_GLIBC = 17
# Modification time of every file in an archive, in seconds since 1970. Zip begins at 1980.
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))


def version() -> str:
    """The version of the workspace."""
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    return manifest["workspace"]["package"]["version"]


def readme(repository: str | None) -> str:
    """The README, its links led to the repository if that is known."""
    text = (ROOT / "README.md").read_text()
    if repository is None:
        return text
    return outside(text, ROOT, f"{repository}/blob/v{version()}", lambda _: True)


def contents(options: argparse.Namespace) -> dict[str, tuple[bytes, int]]:
    """The files of the archive by name, each with its mode."""
    files = {
        "asynclane": (options.binary.read_bytes(), 0o755),
        "README.md": (readme(options.repository).encode(), 0o644),
        "asynclane.service": ((ROOT / "deploy/systemd/asynclane.service").read_bytes(), 0o644),
    }
    for name in ("LICENSE", "CHANGELOG.md"):
        files[name] = ((ROOT / name).read_bytes(), 0o644)
    for path in (ROOT / "config").iterdir():
        files[f"config/{path.name}"] = (path.read_bytes(), 0o644)
    for shell, name in COMPLETIONS.items():
        printed = subprocess.run([*options.runner, options.binary, "completions", shell],
                                 check=True, stdout=subprocess.PIPE).stdout
        files[f"completions/{name}"] = (printed, 0o644)
    if options.sbom:
        files["asynclane.cdx.json"] = (options.sbom.read_bytes(), 0o644)
    return files


def archive(options: argparse.Namespace) -> pathlib.Path:
    """Writes the archive. Its name has no version, so that the newest one has a fixed address."""
    folder = f"asynclane-{version()}-{options.target}"
    bare = io.BytesIO()
    with tarfile.open(fileobj=bare, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, (data, mode) in sorted(contents(options).items()):
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), mode, EPOCH
            tar.addfile(entry, io.BytesIO(data))
    path = options.out / f"asynclane-{options.target}.tar.gz"
    with open(path, "wb") as file:
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=EPOCH, compresslevel=6) as out:
            out.write(bare.getvalue())
    return path


def platform_tag(target: str, binary: bytes) -> str:
    """The platform tag of PyPI for a target; for glibc from the symbols that the binary needs."""
    machine = target.split("-")[0]
    if target.endswith("linux-gnu"):
        needed = [int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", binary)]
        return f"manylinux_2_{max([OLDEST_GLIBC, *needed])}_{machine}"
    if target.endswith("linux-musl"):
        return f"musllinux_1_2_{machine}"
    tags = {
        "aarch64-apple-darwin": "macosx_11_0_arm64",
        "x86_64-apple-darwin": "macosx_10_12_x86_64",
    }
    return tags[target]


def wheel(options: argparse.Namespace) -> pathlib.Path:
    """Builds the wheel with hatchling in a folder of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for path in (*(HERE / "wheel").iterdir(), ROOT / "LICENSE"):
            shutil.copy(path, folder)
        (folder / "README.md").write_text(readme(options.repository))
        shutil.copyfile(options.binary, folder / "asynclane")
        (folder / "asynclane").chmod(0o755)
        if options.sbom:
            shutil.copy(options.sbom, folder / "asynclane.cdx.json")
        environment = os.environ | {
            "ASYNCLANE_WHEEL_VERSION": version(),
            "ASYNCLANE_WHEEL_PLATFORM": platform_tag(options.target, options.binary.read_bytes()),
            "SOURCE_DATE_EPOCH": str(EPOCH),
        }
        built = subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "--target", "wheel"],
            cwd=folder, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if built.returncode != 0:
            sys.exit(f"the wheel cannot be built:\n{built.stdout}")
        [made] = (folder / "dist").glob("*.whl")
        return pathlib.Path(shutil.copy(made, options.out))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--sbom", type=pathlib.Path)
    parser.add_argument("--repository")
    parser.add_argument("--runner", type=shlex.split, default=[])
    options = parser.parse_args()
    options.binary = options.binary.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    said = subprocess.run([*options.runner, options.binary, "--version"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.strip()
    if said != f"asynclane {version()}":
        sys.exit(f"the binary says {said!r}, Cargo.toml has version {version()}")
    print(archive(options))
    print(wheel(options))


if __name__ == "__main__":
    main()
