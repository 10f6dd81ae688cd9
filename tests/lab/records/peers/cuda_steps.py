"""A step of LLaDA-8B on a CUDA device: PyTorch's time beside that of `asynclane inspect device --steps`.

    python cuda_steps.py --asynclane target/release/asynclane --json result.json
    python cuda_steps.py --steps steps.json --json result.json

LLaDA-8B's sizes with random weights in bf16: sequences of 32 rows, each of which sees `--slots` slots
of its sequence's KV cache. The step writes the rows' keys and values, attends, multiplies, and returns
each row's best logit, its token and the log-sum-exp. PyTorch's products and its scaled dot product
attention, captured as a CUDA graph; the median of `--runs` replays, by events. `--asynclane` is a binary
that was built with `--features cuda`; `--steps` is a file that its `inspect device --steps --json` wrote.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F

WIDTH, HEADS, LAYERS, MLP, VOCABULARY, LANE = 4096, 32, 32, 12288, 126464, 32
HEAD = WIDTH // HEADS


def matrix(rows, columns):
    return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) * columns**-0.5


class Layer:
    def __init__(self):
        self.first, self.second = torch.ones(2, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.qkv, self.out = matrix(3 * WIDTH, WIDTH), matrix(WIDTH, WIDTH)
        self.up, self.down = matrix(2 * MLP, WIDTH), matrix(WIDTH, MLP)

    def forward(self, x, keys, values, rotary):
        sequences, slots = keys.shape[0], keys.shape[2]
        q, k, v = F.linear(F.rms_norm(x, (WIDTH,), self.first), self.qkv).view(
            sequences, LANE, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, rotary), rotate(k, rotary)
        keys[:, :, slots - LANE:], values[:, :, slots - LANE:] = k, v
        mixed = F.scaled_dot_product_attention(q, keys, values)
        x = x + F.linear(mixed.transpose(1, 2).reshape(-1, WIDTH), self.out)
        gate, up = F.linear(F.rms_norm(x, (WIDTH,), self.second), self.up).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, self.down)


def rotate(x, rotary):
    cos, sin = rotary
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Model:
    def __init__(self):
        self.table, self.head = matrix(VOCABULARY, WIDTH), matrix(VOCABULARY, WIDTH)
        self.last = torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16)
        self.layers = [Layer() for _ in range(LAYERS)]

    def step(self, tokens, caches, rotary):
        x = self.table[tokens]
        for layer, (keys, values) in zip(self.layers, caches):
            x = layer.forward(x, keys, values, rotary)
        logits = F.linear(F.rms_norm(x, (WIDTH,), self.last), self.head)
        best, token = logits.max(dim=-1)
        return best, token, torch.logsumexp(logits, dim=-1)


def seconds(model, rows, slots, runs):
    sequences = rows // LANE
    shape = (sequences, HEADS, slots, HEAD)
    caches = [tuple(torch.randn(2, *shape, device="cuda", dtype=torch.bfloat16)) for _ in range(LAYERS)]
    angles = torch.rand(LANE, HEAD, device="cuda")
    rotary = angles.cos().bfloat16(), angles.sin().bfloat16()
    tokens = torch.randint(VOCABULARY, (rows,), device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            model.step(tokens, caches, rotary)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model.step(tokens, caches, rotary)
    graph.replay()
    times = []
    for _ in range(runs):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def ours(options):
    """Our steps, as the file of `inspect device --steps` has them."""
    if options.steps:
        steps = json.loads(options.steps.read_text())["steps"]
        wanted = [step for step in steps if step["slots"] == options.slots and step["rows"] in options.rows]
        missing = set(options.rows) - {step["rows"] for step in wanted}
        if missing:
            sys.exit(f"{options.steps}: no step of {sorted(missing)} rows and {options.slots} slots")
        return wanted
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "steps.json"
        command = [options.asynclane, "inspect", "device", "--steps", "--geometry", "llada-8b", "--json", file]
        command += ["--rows", ",".join(map(str, options.rows)), "--slots", str(options.slots), "--device", "cuda"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return json.loads(file.read_text())["steps"]


@torch.inference_mode()
def theirs(rows, slots, runs):
    # cuDNN refuses some of these shapes.
    torch.backends.cuda.enable_cudnn_sdp(False)
    model = Model()
    return {count: seconds(model, count, slots, runs) for count in rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--asynclane", type=Path, help="our binary")
    source.add_argument("--steps", type=Path, help="our steps, measured before")
    parser.add_argument("--rows", type=int, nargs="+", default=[32, 64, 128, 256, 512, 1024])
    parser.add_argument("--slots", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if any(rows % LANE for rows in options.rows):
        sys.exit(f"--rows: expected multiples of {LANE}")
    steps = ours(options)
    torch_ms = theirs(options.rows, options.slots, options.runs)
    table = [
        {key: step[key] for key in ("dtype", "rows", "slots", "floor_ms")}
        | {"ms": step["measured_ms"], "torch_ms": round(torch_ms[step["rows"]], 3)}
        for step in steps
    ]
    for row in table:
        print(f"{row['dtype']} {row['rows']:5} rows: {row['ms']:8.3f} ms, PyTorch {row['torch_ms']:8.3f} ms")
    if options.json:
        result = {
            "command": "python " + " ".join(["cuda_steps.py", *sys.argv[1:]]),
            "device": torch.cuda.get_device_name(), "torch": torch.__version__,
            "geometry": "llada-8b", "gpu_steps": table,
        }
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
