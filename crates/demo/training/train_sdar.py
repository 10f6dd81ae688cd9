"""Trains the block-causal demo model and writes it as a Hugging Face folder.

    python train_sdar.py --out checkpoint-new --minutes 70

It starts from the weights of the causal demo model. The losses are those of masks in blocks as decoding
meets them, and of masks in blocks of one position, whose part in the loss is their part in the rows.
"""

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import causal
import sdar
from blocks import CHECKED, PADDING, Rows, visible
from problems import CRATE
from states import Batches
from tokenizer import END
from train import RESULT_FACTOR, Run
from train_causal import material

MIX = {"calls": 45, "sums": 26, "snippets": 20, "lists": 9, "drills": 3}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    parser.add_argument("--minutes", type=float, default=70.0, help="training time")
    parser.add_argument("--steps", type=int, help="number of steps, instead of the training time")
    parser.add_argument("--state", type=Path, help="file to resume from and to save the state to")
    parser.add_argument("--curve", type=Path, help="CSV file for the losses")
    parser.add_argument("--mix", type=json.loads, default=MIX, help='other shares, as {"sums": 40}')
    parser.add_argument("--init", type=Path, help="folder with initial block-causal weights")
    parser.add_argument("--causal", type=Path, default=CRATE / "checkpoint-wedlm")
    parser.add_argument("--tokenizer", type=Path, default=CRATE / "checkpoint")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=3072, help="rows per batch")
    parser.add_argument("--muon-lr", type=float, default=0.003)
    parser.add_argument("--adam-lr", type=float, default=1.5e-3)
    parser.add_argument("--ema", type=float, default=0.998)
    parser.add_argument("--material", type=float, default=0.5, help="factor for the number of problems")
    parser.add_argument("--threads", type=int, default=0, help="0: one per processor")
    parser.add_argument("--bf16", action="store_true", help="bf16 autocast")
    parser.add_argument("--save-every", type=float, default=5.0, help="minutes between saves")
    return parser.parse_args()


def tensors(length, rows):
    """Tokens, positions, kinds, targets and weights, each [B, N]."""

    def grid(name, fill, dtype):
        lines = [getattr(row, name) for row in rows]
        return torch.tensor([line + [fill] * (length - len(line)) for line in lines], dtype=dtype)

    return (
        grid("tokens", END, torch.long),
        grid("positions", 0, torch.long),
        grid("kinds", PADDING, torch.long),
        grid("targets", END, torch.long),
        grid("weights", 0.0, torch.float32),
    )


def train_step(net, batches, bf16):
    """Computes the gradients of one batch. Returns the weighted mean losses of the masks of both kinds
    of blocks."""
    tokens, positions, kinds, targets, weights = tensors(*batches.next())
    scored = weights > 0
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        logits = net(tokens, positions, visible(positions, kinds), scored)
    losses = F.cross_entropy(logits.float(), targets[scored], reduction="none") * weights[scored]
    (losses.sum() / weights.sum()).backward()
    checks = kinds[scored] == CHECKED

    def mean(chosen):
        return float(losses.detach()[chosen].sum() / weights[scored][chosen].sum())

    return {"masks": mean(~checks), "checks": mean(checks)}


def main():
    options = arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    tokenizer = Tokenizer.from_file(str(options.tokenizer / "tokenizer.json"))
    groups = material(tokenizer, options)
    if options.init:
        net = causal.load(options.init)
    else:
        batch = tensors(*Batches(Rows(groups, 0), options.tokens).next())
        tokens, positions, kinds, _, _ = batch
        net = sdar.from_causal(options.causal, (tokens, positions, visible(positions, kinds)))
    run = Run(options, net, layers=".layers.")
    # A resumed run draws other rows than the first part did.
    rows = Rows(groups, options.seed + run.step)
    rows.result_factor = RESULT_FACTOR
    batches = Batches(rows, options.tokens)

    def write(average):
        causal.save(average, net.config, options.out, options.tokenizer)

    run.train(lambda: train_step(net, batches, options.bf16), write)


if __name__ == "__main__":
    main()
