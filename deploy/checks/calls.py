"""Checks that the unit allows all system calls of a trace (strace -c).

Usage: calls.py UNIT SUMMARY
"""

import pathlib
import re
import subprocess
import sys


def expanded(group):
    """The calls of a group, including nested groups."""
    shown = subprocess.run(
        ["systemd-analyze", "syscall-filter", group], capture_output=True, text=True, check=True
    )
    found = set()
    for line in shown.stdout.splitlines()[1:]:
        name = line.strip()
        if name.startswith("@"):
            found |= expanded(name)
        elif name and not name.startswith("#"):
            found.add(name)
    return found


def allowed(unit):
    """The calls that the SystemCallFilter= lines allow."""
    calls = set()
    for line in re.findall(r"^SystemCallFilter=(.*)$", unit, re.MULTILINE):
        groups = [expanded(group) for group in line.lstrip("~").split()]
        if line.startswith("~"):
            calls -= set().union(*groups)
        else:
            calls |= set().union(*groups)
    return calls


def main():
    unit = pathlib.Path(sys.argv[1]).read_text()
    summary = pathlib.Path(sys.argv[2]).read_text()
    rows = re.findall(r"^ *[\d.]+ +[\d.]+ +\d+ +\d+ +(?:\d+ +)?(\w+)$", summary, re.MULTILINE)
    made = set(rows) - {"total"}
    assert {"accept4", "futex"} <= made, f"not the trace of a server: {sorted(made)}"
    denied = sorted(made - allowed(unit))
    print(f"{len(made)} system calls, denied: {denied}")
    sys.exit(bool(denied))


main()
