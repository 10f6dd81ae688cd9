"""Problems and grades from the generator and the grader of the laboratory, `tests/lab`.

The environment variable LAB_PROGRAM names a built one.
"""

import json
import os
import subprocess
from pathlib import Path

CRATE = Path(__file__).resolve().parent.parent
LAB = CRATE.parents[1] / "tests/lab/Cargo.toml"
TEXT_FAMILIES = ("sums", "snippets", "lists")
FAMILIES = (*TEXT_FAMILIES, "calls")


def _lab(arguments, text=None):
    if built := os.environ.get("LAB_PROGRAM"):
        command = [built, *arguments]
    else:
        command = ["cargo", "run", "--release", "--quiet"]
        command += ["--manifest-path", str(LAB), "--package", "asynclane-lab", "--", *arguments]
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def problems(task, seed, count, split="train"):
    """A list of {"task", "prompt", "answer"}; task is a family or "drills"."""
    family = [] if task == "drills" else ["--task", task]
    return _lab(["problems", *family, "--seed", str(seed), "--count", str(count), "--split", split])


def grades(prompts, outputs):
    """A list of {"task", "end", "strict"}, one for each output."""
    lines = [json.dumps({"prompt": p, "output": o}) for p, o in zip(prompts, outputs, strict=True)]
    return _lab(["grade"], "\n".join(lines))
