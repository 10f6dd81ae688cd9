"""One forward pass by its number of rows, in turns: ours, llama.cpp's, and PyTorch's matrix products.

    python ladder.py --llama-bench build/bin/llama-bench --llama-quantize build/bin/llama-quantize \\
        --json result.json

All sides have the same sizes, random weights and threads. llama.cpp scores the last row alone, ours all
rows. PyTorch multiplies the matrices of the network one after the other, each with its own weights, and
nothing else; beside it stands the time that our pass spends in matrix products. README.md in this folder
says how to install it.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from shared import processor
from weights import LAYERS, MLP, WIDTH, quantized, write_model

ROOT = Path(__file__).resolve().parents[4]
# Of the geometry llada-300m.
VOCABULARY = 32000
# Seconds of PyTorch's products after which no more samples and no larger sizes are measured.
PATIENCE = 30
# Our number format, theirs, and PyTorch's; PyTorch has no products of packed codes.
DTYPES = {
    "f32": ("F32", torch.float32),
    "bf16": ("BF16", torch.bfloat16),
    "int8": ("Q8_0", None),
    "int4": ("Q4_K_M", None),
}


def llama(ours, options, folder):
    """Milliseconds of llama.cpp by rows."""
    theirs = DTYPES[ours][0]
    exact, path = folder / "F32.gguf", folder / f"{theirs}.gguf"
    if not exact.exists():
        # Its tokens have no text.
        write_model(exact, "llama", VOCABULARY, lambda file: file.add_tokenizer_model("no_vocab"))
    quantized(exact, path, theirs, options)
    command = [options.llama_bench, "-m", path, "-n", "0", "-t", str(options.threads), "-r", "3"]
    command += ["-p", ",".join(map(str, options.rows)), "-o", "json", "-ub", str(max(options.rows))]
    command += ["-b", str(max(options.rows))]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    tests = json.loads(done.stdout)
    return {test["n_prompt"]: 1e-6 * statistics.median(test["samples_ns"]) for test in tests}


@torch.inference_mode()
def products(ours, options):
    """Milliseconds of PyTorch's matrix products by rows; none if it has no such products."""
    dtype = DTYPES[ours][1]
    if dtype is None:
        return {}
    shapes = [(3 * WIDTH, WIDTH), (WIDTH, WIDTH), (2 * MLP, WIDTH), (WIDTH, MLP)] * LAYERS
    shapes.append((VOCABULARY, WIDTH))
    weights = [torch.randn(shape).to(dtype) for shape in shapes]
    times = {}
    for rows in options.rows:
        inputs = {width: torch.randn(rows, width).to(dtype) for width in (WIDTH, MLP)}
        samples, begin = [], time.perf_counter()
        while len(samples) < 3 or time.perf_counter() - begin < options.seconds:
            if sum(samples) > PATIENCE:
                break
            started = time.perf_counter()
            for weight in weights:
                torch.nn.functional.linear(inputs[weight.shape[1]], weight)
            samples.append(time.perf_counter() - started)
        times[rows] = 1e3 * statistics.median(samples)
        # Without AVX-512, products in bf16 would take minutes.
        if sum(samples) > PATIENCE:
            break
    return times


def asynclane(ours, options, folder):
    """Milliseconds of our pass and of its products by rows, and the kernels."""
    file = folder / "forward.json"
    command = [options.forward, "llada-300m", ours, "--json", file]
    command += ["--rows", ",".join(map(str, options.rows))]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    result = json.loads(file.read_text())
    times = {row["rows"]: (row["ms"], row["products_ms"]) for row in result["forward"]}
    return times, result["machine"].split(", ")[-1]


def build():
    """The measuring program of the model crate, built by cargo."""
    command = ["cargo", "build", "--release", "--locked", "-p", "asynclane-model", "--example", "forward"]
    command += ["--message-format", "json"]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    built = [json.loads(line).get("executable") for line in done.stdout.splitlines()]
    return next(path for path in reversed(built) if path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llama-bench", type=Path, required=True)
    parser.add_argument("--llama-quantize", type=Path, required=True)
    parser.add_argument("--forward", type=Path, help="the measuring program; default: built by cargo")
    parser.add_argument("--dtypes", choices=DTYPES, nargs="+", default=list(DTYPES))
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 32, 64, 128, 256, 512, 1024])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of PyTorch per size and round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the model files stay")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.forward = options.forward or build()
    torch.set_num_threads(options.threads)
    rounds, kernels = {ours: [] for ours in options.dtypes}, {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        for _ in range(options.rounds):
            # One format after the other: the speed of a shared machine changes within minutes.
            for ours in options.dtypes:
                own, kernels[ours] = asynclane(ours, options, folder)
                theirs = llama(ours, options, folder)
                rounds[ours].append((own, theirs, products(ours, options)))
    table = []
    for ours in options.dtypes:
        for rows in options.rows:
            table.append(row(rounds[ours], ours, rows))
            print(json.dumps(table[-1]))
    if options.json:
        version = subprocess.run([options.llama_bench, "--version"], capture_output=True, text=True)
        version = (version.stdout + version.stderr).splitlines()
        build_name = next((line for line in version if line.startswith("version")), "version unknown")
        setup = {
            "command": "python " + " ".join(["ladder.py", *sys.argv[1:]]),
            "machine": f"{processor()}, {options.threads} threads, {', '.join(kernels.values())}",
            "peers": f"llama.cpp {build_name}, PyTorch {torch.__version__}",
            "geometry": "llada-300m",
        }
        options.json.write_text(json.dumps(setup | {"ladder": table}, indent=2) + "\n")


def row(rounds, ours, rows):
    """Medians of milliseconds, and of the ratios of every round."""
    median = lambda values: round(statistics.median(values), 3)  # noqa: E731
    entry = {
        "dtype": ours,
        "rows": rows,
        "ms": median(own[rows][0] for own, _, _ in rounds),
        "products_ms": median(own[rows][1] for own, _, _ in rounds),
        "llama": DTYPES[ours][0],
        "llama_ms": median(llama[rows] for _, llama, _ in rounds),
        "llama_ratio": median(llama[rows] / own[rows][0] for own, llama, _ in rounds),
    }
    beside = [(own[rows][1], torch[rows]) for own, _, torch in rounds if rows in torch]
    if beside:
        entry["torch_ms"] = median(torch for _, torch in beside)
        entry["torch_ratio"] = median(torch / own for own, torch in beside)
    return entry


if __name__ == "__main__":
    main()
