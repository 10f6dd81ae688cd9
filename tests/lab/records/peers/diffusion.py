"""A masked diffusion model on one GGUF file, in turns: our server and llama.cpp's diffusion example.

    python diffusion.py --llama-diffusion build/bin/llama-diffusion-cli \\
        --llama-quantize build/bin/llama-quantize --asynclane target/release/asynclane \\
        --tokenizer SmolLM2-135M-Instruct.Q4_1.gguf --json result.json

The file has LLaDA's architecture, the sizes of llada-300m, random weights, and the tokenizer of another
GGUF file; --file decodes a file of yours instead. llama.cpp computes the whole canvas of --length tokens
in every one of --steps steps. Of ours, `vanilla` does the same; the other decoders commit as many tokens
in a step over a cache. Nothing is graded. README.md in this folder says how to install llama.cpp.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gguf import GGUFReader, GGUFValueType
from shared import Server, chunks, free_port, processor
from weights import quantized, write_model

PROMPT = "The history of the city begins with"
MASK = "<empty_output>"
BLOCK = 32


def with_tokenizer(path):
    """The number of tokens of a GGUF file, and a function that adds its tokenizer to a writer."""
    fields = {
        name: (field.contents(), field.types)
        for name, field in GGUFReader(path).fields.items()
        if name.startswith("tokenizer.ggml.")
    }
    tokens = fields["tokenizer.ggml.tokens"][0]

    def describe(file):
        for name, (value, types) in fields.items():
            if types[0] == GGUFValueType.ARRAY:
                file.add_array(name, value)
            else:
                file.add_key_value(name, value, types[0])
        file.add_mask_token_id(tokens.index(MASK))
        file.add_bool("diffusion.shift_logits", False)

    return len(tokens), describe


def files(options, folder):
    if options.file:
        yield options.file.stem, options.file
        return
    exact = folder / "llada-f32.gguf"
    if not exact.exists():
        write_model(exact, "llada", *with_tokenizer(options.tokenizer))
    for form in options.formats:
        path = folder / f"llada-{form}.gguf"
        quantized(exact, path, form, options)
        yield form, path


def theirs(path, options):
    """Milliseconds of a whole answer of llama.cpp, as it prints them."""
    command = [options.llama_diffusion, "-m", path, "-p", PROMPT, "--temp", 0]
    command += ["-ub", options.length, "-b", options.length, "-c", options.length]
    command += ["-t", options.threads, "--diffusion-steps", options.steps]
    command += ["--diffusion-block-length", BLOCK]
    done = subprocess.run(list(map(str, command)), check=True, capture_output=True)
    # The text of a random model is not always UTF-8.
    found = re.search(rb"total time: ([0-9.]+)ms", done.stdout + done.stderr)
    return float(found[1])


def ours(server, decoder, options):
    """Milliseconds of a whole answer, and its forward passes."""
    body = {
        "model": "m", "prompt": PROMPT, "temperature": 0, "ignore_eos": True, "stream": True,
        "stream_options": {"include_usage": True}, "max_tokens": 1,
    }
    *_, last = chunks(f"{server.url}/v1/completions", body)
    body["max_tokens"] = options.length - last["usage"]["prompt_tokens"]
    body["diffusion"] = decoder | {"block_length": BLOCK}
    started = time.perf_counter()
    *_, last = chunks(f"{server.url}/v1/completions", body)
    milliseconds = 1e3 * (time.perf_counter() - started)
    usage = last["usage"]
    if usage["completion_tokens"] != body["max_tokens"]:
        raise SystemExit(f"expected {body['max_tokens']} tokens, found {usage['completion_tokens']}")
    return milliseconds, usage["diffusion"]["forwards"]


def decoders(options):
    """By name: the published sampler, and its order over caches."""
    each = {"commit": "top_k", "tokens_per_step": -(-options.length // options.steps)}
    return {
        "vanilla": {"preset": "vanilla", **each},
        "prefix": {"preset": "fast_dllm_prefix", **each},
        "dual": {"preset": "fast_dllm_dual", **each},
    }


def measure(form, path, options):
    """By name: a list of (milliseconds, forward passes), one for each round."""
    port = str(free_port())
    command = [options.asynclane, "serve", path, "--served-model-name", "m", "--port", port]
    command += ["--max-model-len", options.length]
    # Blocks are kept as they are in the file; other formats only if asked for.
    command += ["--dtype", "bf16"] if form == "BF16" else []
    server = Server(command, options.log / "asynclane.txt", "/ready")
    found = {"llama.cpp": [], **{name: [] for name in decoders(options)}}
    try:
        for _ in range(options.rounds):
            found["llama.cpp"].append((theirs(path, options), options.steps))
            for name, decoder in decoders(options).items():
                found[name].append(ours(server, decoder, options))
    finally:
        server.stop()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-diffusion", type=Path, required=True)
    parser.add_argument("--llama-quantize", type=Path)
    parser.add_argument("--asynclane", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, help="a GGUF file with a tokenizer")
    parser.add_argument("--file", type=Path, help="a GGUF file to decode instead of files of --formats")
    parser.add_argument("--formats", nargs="+", default=["BF16", "Q8_0", "Q4_K_M"])
    parser.add_argument("--length", type=int, default=256, help="tokens of prompt and answer")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="llama.cpp's; ours takes all")
    parser.add_argument("--folder", type=Path, help="where the model files stay")
    parser.add_argument("--log", type=Path, default=Path("."), help="folder of our server's log")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if not options.file and not (options.llama_quantize and options.tokenizer):
        parser.error("--llama-quantize and --tokenizer, or --file")
    table = []
    with tempfile.TemporaryDirectory() as scratch:
        for form, path in files(options, options.folder or Path(scratch)):
            found = measure(form, path, options)
            base = found["llama.cpp"]
            for name, rounds in found.items():
                ratios = [other[0] / own[0] for own, other in zip(rounds, base)]
                milliseconds = statistics.median(own for own, _ in rounds)
                table.append({
                    "format": form, "name": name, "forwards": rounds[0][1],
                    "ms": round(milliseconds, 1),
                    "ms_per_forward": round(milliseconds / rounds[0][1], 2),
                    "ratio": round(statistics.median(ratios), 2),
                })
                print(json.dumps(table[-1]), flush=True)
    if options.json:
        setup = {
            "command": "python " + " ".join(["diffusion.py", *sys.argv[1:]]),
            "machine": f"{processor()}, {options.threads} threads",
            "geometry": options.file.stem if options.file else "llada-300m", "length": options.length,
        }
        options.json.write_text(json.dumps(setup | {"diffusion": table}, indent=2) + "\n")


if __name__ == "__main__":
    main()
