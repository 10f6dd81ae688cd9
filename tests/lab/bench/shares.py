#!/usr/bin/env python3
"""Counts the steps in which two or more lanes are active, from the traces of a served model.

    shares.py SERVER LAB [--problems 100] [--seed 7202] [--budget 256] > FILE
"""

import argparse
import json
import platform
import subprocess
import sys
import urllib.request

RULES = [
    "balanced",
    "balanced,entropy_threshold=0.05",
    "balanced,commit=threshold,threshold=0.9",
    "balanced,commit=threshold,threshold=0.95",
    "balanced,commit=threshold,threshold=0.99",
    "balanced,commit=threshold,threshold=0.95,lookahead=0",
    "asynclane",
    "asynclane_paper",
]
TASKS = ["sums", "snippets", "calls"]


def value(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def settings(decoder):
    preset, *rest = decoder.split(",")
    return {"preset": preset} | {k: value(v) for k, v in (item.split("=") for item in rest)}


def events(server, body):
    request = urllib.request.Request(
        server + "/v1/diffusion/trace", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    name = None
    with urllib.request.urlopen(request) as answer:
        for line in answer:
            if line.startswith(b"event: "):
                name = line[7:].strip().decode()
            elif line.startswith(b"data: {") and name == "step":
                yield json.loads(line[6:])


def count(server, problem, decoder, budget):
    """Steps of an answer, and the number in which two lanes took part."""
    prompt = problem["prompt"]
    body = json.loads(prompt) if prompt[0] == "{" else {"messages": [{"role": "user", "content": prompt}]}
    body |= {"model": "demo", "temperature": 0, "max_tokens": budget, "diffusion": settings(decoder)}
    clocks, steps, shared = {}, 0, 0
    for step in events(server, body):
        if step["skipped"]:
            return 0, 0
        ran = [lane for lane in step["lanes"] if lane["clock"] > clocks.get(lane["id"], 0)]
        clocks |= {lane["id"]: lane["clock"] for lane in step["lanes"]}
        steps += 1
        shared += len(ran) > 1
    return steps, shared


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server")
    parser.add_argument("lab")
    parser.add_argument("--problems", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7202)
    parser.add_argument("--budget", type=int, default=256)
    args = parser.parse_args()
    rows = []
    for task in TASKS:
        command = [args.lab, "problems", "--task", task, "--split", "eval"]
        command += ["--count", str(args.problems), "--seed", str(args.seed)]
        problems = [json.loads(line) for line in subprocess.check_output(command).splitlines()]
        for decoder in [f"{rule},fork=auto" for rule in RULES]:
            counts = [count(args.server, problem, decoder, args.budget) for problem in problems]
            steps, shared = map(sum, zip(*counts))
            rows.append({"task": task, "decoder": decoder, "steps": steps, "two_lanes": shared})
            print(task, decoder, round(100 * shared / steps, 1), file=sys.stderr)
    command = f"tests/lab/bench/shares.py URL LAB --problems {args.problems} --seed {args.seed}"
    report = {"command": command + f" --budget {args.budget}", "machine": platform.processor() or platform.machine()}
    print(json.dumps(report | {"rows": rows}, indent=2))


main()
