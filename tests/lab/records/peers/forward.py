"""PyTorch's forward pass of a model beside ours, in turns, at the same sizes.

    python forward.py --repo Fast-dLLM --geometry llada-300m --json result.json

Theirs: the public modeling code of LLaDA (Fast-dLLM's copy) with random weights, logits of all rows,
no cache. Ours: `--example forward` of the model crate, built by cargo, candidates of all rows. One
sequence, full attention. README.md in this folder says how to install it.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[4]
# width, heads, layers, MLP, vocabulary of crates/model/src/geometry.rs
SIZES = {"demo": (192, 6, 6, 512, 1024), "llada-300m": (1024, 16, 24, 2816, 32000)}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def theirs(repo, geometry, dtype):
    sys.path.insert(0, str(repo / "llada"))
    from model.configuration_llada import LLaDAConfig
    from model.modeling_llada import LLaDAModelLM

    config = LLaDAConfig.from_pretrained(ROOT / "crates/demo/checkpoint")
    width, heads, layers, mlp, vocabulary = SIZES[geometry]
    config.d_model, config.n_heads, config.n_kv_heads, config.n_layers = width, heads, heads, layers
    config.mlp_hidden_size, config.vocab_size, config.embedding_size = mlp, vocabulary, vocabulary
    config.init_device = "cpu"
    return LLaDAModelLM(config, init_params=True).to(DTYPES[dtype]).eval()


@torch.inference_mode()
def their_time(model, rows, seconds):
    tokens = torch.arange(rows)[None] % 900
    times, begin = [], time.perf_counter()
    while len(times) < 5 or time.perf_counter() - begin < seconds:
        started = time.perf_counter()
        model(tokens)
        times.append(time.perf_counter() - started)
    return 1e3 * statistics.median(times)


def our_times(options):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "forward.json"
        command = ["cargo", "run", "--release", "--quiet", "-p", "asynclane-model", "--example"]
        command += ["forward", "--", options.geometry, options.dtype, "--json", str(file)]
        command += ["--rows", ",".join(map(str, options.rows))]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        result = json.loads(file.read_text())
    return result["machine"], {row["rows"]: row["ms"] for row in result["forward"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repo", type=Path, required=True, help="a clone of NVlabs/Fast-dLLM")
    parser.add_argument("--geometry", choices=SIZES, default="llada-300m")
    parser.add_argument("--dtype", choices=DTYPES, default="f32", help="of both sides")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 32, 64, 128, 256])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of PyTorch per size and round")
    parser.add_argument("--threads", type=int, default=0, help="PyTorch's; 0 = its own choice")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    model = theirs(options.repo, options.geometry, options.dtype)
    their_time(model, 16, 0)
    machine, rounds = platform.processor(), []
    for _ in range(options.rounds):
        other = {rows: their_time(model, rows, options.seconds) for rows in options.rows}
        machine, own = our_times(options)
        rounds.append((other, own))
    table = []
    for rows in options.rows:
        ratio = statistics.median(other[rows] / own[rows] for other, own in rounds)
        sides = [statistics.median(side[rows] for side in sides) for sides in zip(*rounds)]
        table.append({"name": "PyTorch", "rows": rows, "ms": round(sides[0], 3), "ratio": 1.0})
        table.append({"name": "asynclane", "rows": rows, "ms": round(sides[1], 3), "ratio": round(ratio, 2)})
        print(f"{rows:4} rows: PyTorch {sides[0]:8.3f} ms, asynclane {sides[1]:8.3f} ms, {ratio:.2f}x")
    if options.json:
        setup = {
            "command": "python " + " ".join(["forward.py", *sys.argv[1:]]),
            "machine": f"{machine}, PyTorch {torch.__version__} with {torch.get_num_threads()} threads",
            "geometry": options.geometry, "dtype": options.dtype, "torch": torch.__version__,
        }
        options.json.write_text(json.dumps(setup | {"forward": table}, indent=2) + "\n")


if __name__ == "__main__":
    main()
