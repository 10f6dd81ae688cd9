"""Problems and grades from the crate's own generator and grader: there is no second one."""

import json
import subprocess
from pathlib import Path

CRATE = Path(__file__).resolve().parent.parent
FAMILIES = ("sums", "snippets", "lists")


def _example(name, arguments, text=None):
    command = ["cargo", "run", "--release", "--quiet", "--manifest-path", str(CRATE / "Cargo.toml")]
    command += ["--example", name, "--", *arguments]
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def problems(task, seed, count, split="train"):
    """A list of {"task", "prompt", "answer"}; task is a family or "drills"."""
    arguments = ["--task", task, "--seed", str(seed), "--count", str(count), "--split", split]
    return _example("problems", arguments)


def grades(prompts, outputs):
    """A list of {"task", "end", "strict"}, one for each output."""
    lines = [json.dumps({"prompt": p, "output": o}) for p, o in zip(prompts, outputs, strict=True)]
    return _example("grade", [], "\n".join(lines))
