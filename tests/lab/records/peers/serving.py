"""Two servers on one GGUF file, in turns: ours and llama.cpp's `llama-server`.

    python serving.py --llama-server build/bin/llama-server --asynclane target/release/asynclane \\
        --model SmolLM2.gguf --json result.json

Both get the same streams of /v1/completions, as many in flight as --concurrency says: greedy, and
exactly --tokens tokens each. Times are those of the client. README.md in this folder says how to
install llama.cpp.
"""

import argparse
import json
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shared import Server, chunks, free_port, processor

TEXTS = [
    "The history of the city begins with", "To bake a good loaf of bread, first",
    "In physics, the word energy means", "Once upon a time, in a small village,",
    "The capital of France is", "A computer program is", "Rivers flow to the sea because",
    "The most important rule of writing is", "My favourite season is", "Trees need water, and",
    "The first train of the morning", "Music was always", "A good teacher", "The moon is",
    "When the rain stopped,", "Mathematics is the study of",
]


class Asked(Server):
    """A server that is asked with streams."""

    def ask(self, text, tokens):
        """A streamed answer: seconds to the first text, seconds in all, and its tokens."""
        body = {
            "model": "m", "prompt": text, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
            "stream": True, "stream_options": {"include_usage": True},
        }
        started, first, usage = time.perf_counter(), None, None
        for chunk in chunks(f"{self.url}/v1/completions", body):
            usage = chunk.get("usage") or usage
            if first is None and any(choice["text"] for choice in chunk["choices"]):
                first = time.perf_counter() - started
        return first, time.perf_counter() - started, usage["completion_tokens"]

    def run(self, concurrency, options):
        """Tokens per second of all streams, and the median milliseconds to the first text."""
        texts = (TEXTS * options.requests)[: max(options.requests, concurrency)]
        started = time.perf_counter()
        with ThreadPoolExecutor(concurrency) as pool:
            answers = list(pool.map(lambda text: self.ask(text, options.tokens), texts))
        seconds = time.perf_counter() - started
        short = [tokens for _, _, tokens in answers if tokens != options.tokens]
        if short:
            raise SystemExit(f"{self.url}: expected {options.tokens} tokens each, found {short}")
        first = statistics.median(1e3 * first for first, _, _ in answers)
        return sum(tokens for _, _, tokens in answers) / seconds, first

def servers(options):
    most = max(options.concurrency)
    ports = [str(free_port()) for _ in range(2)]
    slots = str(most * 512)
    theirs = [options.llama_server, "-m", options.model, "-t", options.threads, "-np", most]
    theirs += ["-c", slots, "--host", "127.0.0.1", "--port", ports[0]]
    ours = [options.asynclane, "serve", options.model, "--served-model-name", "m", "--port", ports[1]]
    ours += options.flags.split()
    return {
        "llama.cpp": Asked(theirs, options.log / "llama-server.txt"),
        "asynclane": Asked(ours, options.log / "asynclane.txt", "/ready"),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-server", type=Path, required=True)
    parser.add_argument("--asynclane", type=Path, required=True)
    parser.add_argument("--model", type=Path, required=True, help="a GGUF file that both serve")
    parser.add_argument("--flags", default="", help="further flags of our server, in one string")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--requests", type=int, default=8, help="per round; at least one per stream")
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2, help="llama.cpp's; ours takes all")
    parser.add_argument("--log", type=Path, default=Path("."), help="folder of the servers' logs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    running = servers(options)
    found = {(name, count): [] for count in options.concurrency for name in running}
    try:
        for server in running.values():
            server.ask(TEXTS[0], 8)
        for _ in range(options.rounds):
            for (name, count), rounds in found.items():
                rounds.append(running[name].run(count, options))
    finally:
        for server in running.values():
            server.stop()
    table = []
    for count in options.concurrency:
        base = found["llama.cpp", count]
        for name in running:
            rounds = found[name, count]
            ratios = [own[0] / other[0] for own, other in zip(rounds, base)]
            table.append({
                "name": name, "concurrency": count,
                "tps": round(statistics.median(speed for speed, _ in rounds), 1),
                "ttft_ms": round(statistics.median(first for _, first in rounds), 1),
                "ratio": round(statistics.median(ratios), 2),
            })
            print(json.dumps(table[-1]))
    if options.json:
        setup = {
            "command": "python " + " ".join(["serving.py", *sys.argv[1:]]),
            "machine": f"{processor()}, {options.threads} threads",
            "model": options.model.name, "tokens": options.tokens,
        }
        options.json.write_text(json.dumps(setup | {"serving": table}, indent=2) + "\n")


if __name__ == "__main__":
    main()
