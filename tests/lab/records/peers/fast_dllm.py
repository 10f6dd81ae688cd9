"""Running servers against the public PyTorch code of Fast-dLLM, in turns, on the same problems.

    python fast_dllm.py --repo Fast-dLLM --url http://127.0.0.1:8000 --json result.json
    python fast_dllm.py --repo Fast-dLLM --url f32=http://127.0.0.1:8001 int8=http://127.0.0.1:8002

Theirs: `generate_with_dual_cache`, one prompt after the other, as they publish it. Ours: the same
chat prompts as streams of /v1/chat/completions, as many in flight as --concurrency says. Both count
output tokens up to the first stop token. README.md in this folder says how to install it.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[3]
sys.path.insert(0, str(ROOT / "crates/demo/training"))

from problems import grades, problems  # noqa: E402
from shared import all_chunks  # noqa: E402
from tokenizer import END, END_OF_TURN, MASK, chat  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402


class Theirs:
    """Their model and sampler on one checkpoint."""

    def __init__(self, repo, checkpoint, dtype):
        sys.path.insert(0, str(repo / "llada"))
        import generate
        from model.configuration_llada import LLaDAConfig
        from model.modeling_llada import LLaDAModelLM

        config = LLaDAConfig.from_pretrained(checkpoint)
        config.init_device = "cpu"
        self.sample = generate.generate_with_dual_cache
        model = LLaDAModelLM.from_pretrained(checkpoint, config=config, torch_dtype=dtype)
        self.model = model.eval()
        self.tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))

    def answer(self, prompt, options):
        ids = self.tokenizer.encode(chat(prompt), add_special_tokens=False).ids
        canvas, forwards = self.sample(
            self.model, torch.tensor([ids]), steps=options.budget, gen_length=options.budget,
            block_length=32, temperature=0.0, mask_id=MASK, threshold=options.threshold,
        )
        output = canvas[0, len(ids) :].tolist()
        ends = [place for place, token in enumerate(output) if token in (END, END_OF_TURN)]
        output = output[: ends[0]] if ends else output
        return self.tokenizer.decode(output), len(output), forwards


def ask(url, body):
    """One streamed answer: its text, its tokens and its forward passes."""
    text, usage = "", {}
    for chunk in all_chunks(f"{url}/v1/chat/completions", body):
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            text += choice["delta"].get("content") or ""
    return text, usage["completion_tokens"], usage["diffusion"]["forwards"]


def named(url):
    """A server and the name of its rows: `NAME=URL`, or a URL alone."""
    name, separator, rest = url.partition("=")
    return (name + " ", rest) if separator and "/" not in name else ("", url)


def decoding(text):
    """The request's field `diffusion` of a preset and settings, as in `fast,lookahead=4`."""
    preset, *settings = text.split(",")
    pairs = (setting.split("=", 1) for setting in settings)
    return {"preset": preset} | {key: json.loads(value) for key, value in pairs}


def ours(prompts, side, options):
    """Answers of a server, so many streams at a time."""
    url, concurrency = side
    bodies = [
        {
            "model": options.model, "messages": [{"role": "user", "content": prompt}],
            "max_tokens": options.budget, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}, "diffusion": decoding(options.preset),
        }
        for prompt in prompts
    ]
    with ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(lambda body: ask(url, body), bodies))


def timed(run):
    started = time.perf_counter()
    answers = run()
    return answers, time.perf_counter() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repo", type=Path, required=True, help="a clone of NVlabs/Fast-dLLM")
    parser.add_argument("--checkpoint", type=Path, default=ROOT / "crates/demo/checkpoint")
    parser.add_argument(
        "--url", type=named, nargs="+", default=[("", "http://127.0.0.1:8000")],
        help="our servers, each a URL or NAME=URL; all must be up, one at a time is asked",
    )
    parser.add_argument("--model", default="demo")
    parser.add_argument(
        "--preset", default="asynclane",
        help="what the server decodes with, and numeric settings: `fast,lookahead=4`",
    )
    parser.add_argument("--task", default="sums")
    parser.add_argument("--problems", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=int, default=256)
    parser.add_argument("--threshold", type=float, default=0.9)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--threads", type=int, default=0, help="PyTorch's; 0 = its own choice")
    parser.add_argument("--dtype", default="float32", help="PyTorch's")
    parser.add_argument("--machine", default=platform.processor(), help="for the result file")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    theirs = Theirs(options.repo, options.checkpoint, getattr(torch, options.dtype))
    drawn = problems(options.task, 1, options.problems, "eval")
    prompts = [problem["prompt"] for problem in drawn]
    sides = {f"Fast-dLLM dual cache, {options.dtype}": None}
    sides |= {
        f"{options.preset} {name}c={count}": (url, count)
        for name, url in options.url
        for count in options.concurrency
    }
    speeds, answers = {name: [] for name in sides}, {name: [] for name in sides}
    theirs.answer(prompts[0], options)
    for _, url in options.url:
        ours(prompts[:1], (url, 1), options)
    size = -(-len(prompts) // options.rounds)
    for begin in range(0, len(prompts), size):
        part = prompts[begin : begin + size]
        for name, side in sides.items():
            if side is None:
                run = lambda: [theirs.answer(prompt, options) for prompt in part]  # noqa: E731
            else:
                run = lambda: ours(part, side, options)  # noqa: E731
            got, seconds = timed(run)
            answers[name] += got
            speeds[name].append(sum(tokens for _, tokens, _ in got) / seconds)
    report(sides, speeds, (answers, prompts), options)


def report(sides, speeds, done, options):
    """Prints a row per side; ratios are medians over rounds."""
    answers, prompts = done
    base = next(iter(sides))
    rows = []
    print(f"{'':<34} {'end %':>6} {'strict %':>8} {'NFE/token':>10} {'TPS':>8} {'ratio':>8}")
    for name in sides:
        marks = grades(prompts, [text for text, _, _ in answers[name]])
        share = lambda key: 100 * sum(mark[key] for mark in marks) / len(marks)  # noqa: E731
        tokens = sum(tokens for _, tokens, _ in answers[name])
        ratios = [ours / theirs for ours, theirs in zip(speeds[name], speeds[base])]
        row = {
            "name": name, "end": round(share("end"), 1), "strict": round(share("strict"), 1),
            "nfe_per_token": round(sum(nfe for _, _, nfe in answers[name]) / tokens, 3),
            "tps": round(statistics.median(speeds[name]), 1),
            "ratio": round(statistics.median(ratios), 2),
        }
        rows.append(row)
        print(
            f"{name:<34} {row['end']:>6} {row['strict']:>8} {row['nfe_per_token']:>10} "
            f"{row['tps']:>8} {row['ratio']:>7}x"
        )
    if options.json:
        setup = {
            "command": "python " + " ".join(["fast_dllm.py", *sys.argv[1:]]),
            "machine": f"{options.machine}, {torch.get_num_threads()} threads",
            "torch": torch.__version__,
            "task": options.task, "problems": len(prompts), "max_tokens": options.budget,
        }
        options.json.write_text(json.dumps(setup | {"peers": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
