"""Runs bodies of Python functions that a model wrote, each in a child with limits.

One JSON line in: {"parameters": [...], "body": "...", "calls": [[arguments, expected], ...]}.
One line out: `true` if every call returns what is expected, else `false`.
"""

import ast
import json
import os
import resource
import signal
import sys

BUILTINS = {
    f.__name__: f
    for f in (abs, all, any, bool, dict, enumerate, filter, float, int, len, list, map, max, min,
              range, reversed, round, set, sorted, str, sum, tuple, zip)
}
# The starts of attribute names that lead out of a body.
HIDDEN = ("_", "ag_", "co_", "cr_", "f_", "gi_", "tb_")
SECONDS = 2
BYTES = 256 << 20


def compiled(job):
    """The function. No imports and no hidden names, so that a
    body reaches nothing but its arguments and the functions above."""
    head = f"def solve({', '.join(job['parameters'])}):\n"
    tree = ast.parse(head + job["body"])
    if len(tree.body) != 1:
        raise SyntaxError("text behind the body")
    for node in ast.walk(tree):
        name = getattr(node, "attr", None) or getattr(node, "id", None) or ""
        if name.startswith(HIDDEN) or isinstance(node, (ast.Import, ast.ImportFrom, ast.ClassDef)):
            raise SyntaxError("not an answer to a snippet")
    names = {"__builtins__": BUILTINS}
    exec(compile(tree, "answer", "exec"), names)
    return names["solve"]


def is_right(job):
    solve = compiled(job)
    for arguments, expected in job["calls"]:
        found = solve(*arguments)
        if type(found) is bool or found != expected:
            return False
    return True


def child(job):
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
    try:
        return 0 if is_right(job) else 1
    except BaseException:
        return 1


def main():
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os._exit(child(job))
        _, status = os.waitpid(pid, 0)
        print("true" if status == 0 else "false", flush=True)


signal.signal(signal.SIGINT, signal.SIG_IGN)
main()
