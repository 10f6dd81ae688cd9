#!/usr/bin/env python3
"""Compares the memory that `asynclane models` lists with what `asynclane serve` then takes.

    memory.py SERVER --work FOLDER > FILE

Models of the hub are served with random weights of their sizes, which need PyTorch and safetensors and
room for one of them in FOLDER. The server answers a completion. The peak is the largest RssAnon of samples:
the list counts no mapped files, whose pages the system can take back. It counts K/V of 4,096 positions;
pages take memory when they are first written.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PORT = 8377
EMBEDDED = ["demo", "demo-wedlm", "demo-sdar"]
RANDOM = {"smollm2": "SMOLLM2_135M", "fast-dllm-1.5b": "FAST_DLLM_1_5B", "sdar-1.7b": "SDAR_1_7B"}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def configuration(name):
    text = (ROOT / "crates/cli/src/shelf/geometries.rs").read_text()
    return json.loads(re.search(rf"const {name}: &str = r#\"(.*?)\"#", text, re.S)[1])


def shapes(config):
    d, m, v = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    head = config.get("head_dim", d // config["num_attention_heads"])
    is_sdar = config["architectures"][0].startswith("SDAR")
    head = 128 if is_sdar else head
    q, kv = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    found = {"model.embed_tokens.weight": [v, d], "model.norm.weight": [d]}
    if not config.get("tie_word_embeddings"):
        found["lm_head.weight"] = [v, d]
    for number in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{number}."
        for name, shape in {
            "input_layernorm": [d], "post_attention_layernorm": [d],
            "self_attn.q_proj": [q, d], "self_attn.k_proj": [kv, d], "self_attn.v_proj": [kv, d],
            "self_attn.o_proj": [d, q], "mlp.gate_proj": [m, d], "mlp.up_proj": [m, d], "mlp.down_proj": [d, m],
        }.items():  # fmt: skip
            found[f"{prefix}{name}.weight"] = shape
        if is_sdar:
            found |= {f"{prefix}self_attn.{part}_norm.weight": [head] for part in "qk"}
        if "Fast_dLLM" in config["architectures"][0]:
            found |= {f"{prefix}self_attn.{part}_proj.bias": [q if part == "q" else kv] for part in "qkv"}
    return found


def tokenizer(size):
    """A byte-level tokenizer with as many tokens."""
    vocabulary = {chr(0x100 + number): number for number in range(256)}
    vocabulary |= {f"<{number}>": number for number in range(256, size)}
    return {
        "version": "1.0",
        "added_tokens": [],
        "pre_tokenizer": BYTES,
        "decoder": BYTES,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }


def write(name, folder):
    import torch
    from safetensors.torch import save_file

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    config = configuration(name)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(config["vocab_size"])))
    torch.manual_seed(1)
    tensors = {}
    for tensor, shape in shapes(config).items():
        scale = shape[-1] ** -0.5 if len(shape) == 2 else 1.0
        tensors[tensor] = (torch.randn(shape, dtype=torch.bfloat16) * scale).contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


class Peak(threading.Thread):
    """The largest RssAnon of a process, in bytes."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.bytes = pid, 0
        self.start()

    def run(self):
        while True:
            try:
                status = Path(f"/proc/{self.pid}/status").read_text()
            except OSError:
                return
            found = re.search(r"RssAnon:\s+(\d+) kB", status)
            self.bytes = max(self.bytes, int(found[1]) * 1024 if found else 0)
            time.sleep(0.01)


def served(server, model, dtype):
    """Peak bytes of a server that answered one completion."""
    words = [server, "serve", "--model", str(model), "--dtype", dtype, "--port", str(PORT), "--device", "cpu"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = Peak(process.pid)
    try:
        base = f"http://127.0.0.1:{PORT}"
        for _ in range(3000):
            if process.poll() is not None:
                sys.exit(f"{' '.join(words)}: ended with {process.returncode}")
            try:
                urllib.request.urlopen(f"{base}/ready")
                break
            except OSError:
                time.sleep(0.1)
        id = json.load(urllib.request.urlopen(f"{base}/v1/models"))["data"][0]["id"]
        body = json.dumps({"model": id, "prompt": "abc " * 100, "max_tokens": 32, "temperature": 0}).encode()
        request = urllib.request.Request(f"{base}/v1/completions", body, {"content-type": "application/json"})
        urllib.request.urlopen(request, timeout=600).read()
        return peak.bytes
    finally:
        process.kill()
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("server")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--dtypes", default="f32,bf16,int8,int4")
    options = parser.parse_args()
    listed = json.loads(subprocess.check_output([options.server, "models", "--json"]))["models"]
    rows = []
    for name in [*EMBEDDED, *RANDOM]:
        entry = next(entry for entry in listed if entry["name"] == name)
        model = name
        if name in RANDOM:
            model = options.work / name
            write(RANDOM[name], model)
        for row in entry["memory"]:
            if row["dtype"] not in options.dtypes.split(","):
                continue
            taken = served(options.server, model, row["dtype"])
            sizes = {"listed": row["needed"], "listed_weights": row["weights"], "taken": taken}
            gib = {f"{key}_gib": round(size / 2**30, 2) for key, size in sizes.items()}
            rows.append({"model": name, "dtype": row["dtype"]} | gib)
            print(rows[-1], file=sys.stderr, flush=True)
        if name in RANDOM:
            shutil.rmtree(model)
    result = {"command": f"memory.py SERVER --work FOLDER --dtypes {options.dtypes}",
              "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} threads", "rows": rows}  # fmt: skip
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
