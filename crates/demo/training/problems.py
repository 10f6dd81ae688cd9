"""Problems and grades from the generator and the grader of the laboratory, `crates/lab`."""

import json
import subprocess
from pathlib import Path

CRATE = Path(__file__).resolve().parent.parent
LAB = CRATE.parent / "lab"
FAMILIES = ("sums", "snippets", "lists")


def _lab(arguments, text=None):
    command = ["cargo", "run", "--release", "--quiet", "--manifest-path", str(LAB / "Cargo.toml")]
    command += ["--", *arguments]
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
