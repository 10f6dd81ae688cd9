"""Accuracy of a checkpoint on held-out problems, with two grades: by the end and strict.

    python evaluate.py --model ../checkpoint --json accuracy.json

Block-wise decoding in f32 at temperature 0. By default each forward commits the most confident
position; with --threshold it also commits every position with at least that confidence.
"""

import argparse
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer

import model as llada
from problems import FAMILIES, grades, problems
from tokenizer import END, END_OF_TURN, MASK, chat


@torch.inference_mode()
def decode(net, prompt, budget, block, threshold):
    """Output ids of one prompt up to its first stop token, and the number of forward passes."""
    canvas = torch.tensor([prompt + [MASK] * budget])
    forwards = 0
    for start in range(len(prompt), len(prompt) + budget, block):
        stop = min(start + block, canvas.shape[1])
        while (masked := (canvas[0, start:stop] == MASK).nonzero().flatten()).numel():
            scored = torch.zeros_like(canvas, dtype=torch.bool)
            scored[0, start + masked] = True
            confidence, token = net(canvas, scored=scored).softmax(-1).max(-1)
            forwards += 1
            chosen = confidence >= threshold
            chosen[confidence.argmax()] = True
            canvas[0, start + masked[chosen]] = token[chosen]
        output = canvas[0, len(prompt) : stop].tolist()
        ends = [offset for offset, token in enumerate(output) if token in (END, END_OF_TURN)]
        if ends:
            return output[: ends[0]], forwards
    return output, forwards


def shares(judged):
    """The number of problems, and the percentages that are right by each grade."""
    percent = {
        key: round(100 * sum(grade[key] for grade in judged) / max(1, len(judged)), 1)
        for key in ("end", "strict")
    }
    return {"problems": len(judged), **percent}


def kind_of(problem):
    """What a problem of the calls asks for: a call, the result of the last one, or neither."""
    if problem["answer"].startswith("<tool_call>"):
        return "call"
    return "result" if '"role":"tool"' in problem["prompt"] else "free"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--count", type=int, default=60, help="problems per family")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--budget", type=int, default=128)
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--threshold", type=float, default=2.0, help="above 1: one token per forward")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--tasks", nargs="*", default=FAMILIES, help="families")
    parser.add_argument("--wrong", action="store_true", help="print the wrong outputs")
    parser.add_argument("--json", type=Path, help="output file for the figures")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    net = llada.load(options.model).eval()
    tokenizer = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    table = {}
    for task in options.tasks:
        drawn = problems(task, options.seed, options.count, "eval")
        outputs, tokens, forwards = [], 0, 0
        for problem in drawn:
            prompt = tokenizer.encode(chat(problem["prompt"]), add_special_tokens=False).ids
            ids, passes = decode(net, prompt, options.budget, options.block, options.threshold)
            outputs.append(tokenizer.decode(ids, skip_special_tokens=False))
            tokens, forwards = tokens + len(ids), forwards + passes
        judged = grades([problem["prompt"] for problem in drawn], outputs)
        table[task] = {**shares(judged), "tokens_per_forward": round(tokens / forwards, 2)}
        if task == "calls":
            for kind in ("call", "result", "free"):
                of_kind = [g for g, p in zip(judged, drawn, strict=True) if kind_of(p) == kind]
                table[task][kind] = shares(of_kind)
        print(f"{task:9}", table[task], flush=True)
        if options.wrong:
            for grade, problem, output in zip(judged, drawn, outputs, strict=True):
                if not grade["strict"]:
                    print(json.dumps({**grade, **problem, "output": output}))
    if options.json:
        settings = {"seed": options.seed, "budget": options.budget, "block_length": options.block}
        settings["threshold"] = options.threshold if options.threshold <= 1 else None
        options.json.write_text(json.dumps({"settings": settings, "families": table}, indent=2) + "\n")


if __name__ == "__main__":
    main()
