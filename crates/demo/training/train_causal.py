"""Trains the causal demo model and writes it as a Hugging Face folder.

    python train_causal.py --out checkpoint-new --minutes 90

It starts from the weights of the demo model. The schedule depends on the elapsed share of the time or
of the steps: the first share uses only the clean stream, the rest both streams with half of the loss
each (WeDLM, arXiv 2512.22737, section 4).
"""

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import causal
from problems import CRATE, problems
from states import Batches, examples
from streams import Rows, visible
from tokenizer import END
from train import MIX, RESULT_FACTOR, Run

EQUATIONS_SHARE = 4


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    parser.add_argument("--minutes", type=float, default=90.0, help="training time")
    parser.add_argument("--steps", type=int, help="number of steps, instead of the training time")
    parser.add_argument("--state", type=Path, help="file to resume from and to save the state to")
    parser.add_argument("--curve", type=Path, help="CSV file for the losses")
    parser.add_argument("--mix", type=json.loads, default={}, help='other shares, as {"sums": 40}')
    parser.add_argument("--init", type=Path, help="folder with initial causal weights")
    parser.add_argument("--llada", type=Path, default=CRATE / "checkpoint")
    parser.add_argument("--clean", type=float, default=0.3, help="share of the time with only the clean stream")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=3072, help="rows per batch")
    parser.add_argument("--muon-lr", type=float, default=0.004)
    parser.add_argument("--adam-lr", type=float, default=1.5e-3)
    parser.add_argument("--ema", type=float, default=0.999)
    parser.add_argument("--material", type=float, default=1.0, help="factor for the number of problems")
    parser.add_argument("--threads", type=int, default=0, help="0: one per processor")
    parser.add_argument("--save-every", type=float, default=5.0, help="minutes between saves")
    return parser.parse_args()


def material(tokenizer, options):
    groups = []
    for task, (share, count) in MIX.items():
        share = options.mix.get(task, share)
        drawn = problems(task, options.seed, max(1, int(count * options.material)))
        groups.append((share, examples(tokenizer, drawn)))
        if task == "drills":
            groups.append((EQUATIONS_SHARE, examples(tokenizer, drawn, bare=True)))
    return groups


def tensors(length, rows):
    """Tokens, positions, blocks, targets, and the weights of next tokens and of masks, each [B, N]."""

    def grid(name, fill, dtype):
        lines = [getattr(row, name) for row in rows]
        return torch.tensor([line + [fill] * (length - len(line)) for line in lines], dtype=dtype)

    return (
        grid("tokens", END, torch.long),
        grid("positions", 0, torch.long),
        # Padding is a separate block that no other row sees.
        grid("blocks", 1 << 20, torch.long),
        grid("targets", END, torch.long),
        grid("ahead", 0.0, torch.float32),
        grid("masked", 0.0, torch.float32),
    )


def train_step(net, batches, bf16=True):
    """Computes the gradients of one batch. Returns the losses of next tokens and of masks, which is
    0 without masks."""
    tokens, positions, blocks, targets, ahead, masked = tensors(*batches.next())
    scored = (ahead + masked) > 0
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        logits = net(tokens, positions, visible(positions, blocks), scored)
    losses = F.cross_entropy(logits.float(), targets[scored], reduction="none")
    weights = {"next": ahead, "masks": masked}
    means = {name: (losses * w[scored]).sum() / w.sum() for name, w in weights.items() if w.any()}
    (sum(means.values()) / len(means)).backward()
    return {"next": 0.0, "masks": 0.0} | {name: float(mean.detach()) for name, mean in means.items()}


def main():
    options = arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    tokenizer = Tokenizer.from_file(str(options.llada / "tokenizer.json"))
    net = causal.load(options.init) if options.init else causal.from_llada(options.llada)
    run = Run(options, net, layers=".layers.")
    # A resumed run draws other rows than the first part did.
    rows = Rows(material(tokenizer, options), options.seed + run.step)
    batches = Batches(rows, options.tokens, weights="targets")

    def gradients():
        rows.dual = run.done() >= options.clean
        rows.result_factor = 1.0 if run.done() < 0.1 and not options.init else RESULT_FACTOR
        return train_step(net, batches)

    def write(average):
        causal.save(average, net.config, options.out, options.llada)

    run.train(gradients, write)


if __name__ == "__main__":
    main()
