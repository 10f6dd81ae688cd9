"""Trains the demo model and writes it as a Hugging Face folder.

    python train.py --out checkpoint-new --minutes 120

The data comes from the crate's generator (train split only). The saved weights are the exponential
moving average. The schedule depends on the elapsed time, so that a run with any number of minutes is
complete.
"""

import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import model as llada
from muon import Muon
from problems import CRATE, problems
from states import Batches, Rows, examples
from tokenizer import MASK

# Weight of each kind of problem in a batch, and the number of problems generated.
MIX = {"sums": (50, 120_000), "snippets": (25, 60_000), "lists": (13, 40_000), "drills": (8, 30_000)}
BARE_SHARE = 4
WARM_UP_STEPS = 60
FLOOR = 0.03
RESULT_FACTOR = 4.0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    parser.add_argument("--minutes", type=float, default=120.0, help="training time")
    parser.add_argument("--init", type=Path, help="folder with initial weights")
    parser.add_argument("--tokenizer", type=Path, default=CRATE / "checkpoint")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=3072, help="tokens per batch")
    parser.add_argument("--muon-lr", type=float, default=0.004)
    parser.add_argument("--adam-lr", type=float, default=1.5e-3)
    parser.add_argument("--ema", type=float, default=0.999)
    parser.add_argument("--material", type=float, default=1.0, help="factor for the number of problems")
    parser.add_argument("--threads", type=int, default=0, help="0: one per processor")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true", help="compile the model")
    parser.add_argument("--save-every", type=float, default=10.0, help="minutes between saves")
    return parser.parse_args()


def material(tokenizer, options):
    groups = []
    for task, (share, count) in MIX.items():
        drawn = problems(task, options.seed, max(1, int(count * options.material)))
        groups.append((share, examples(tokenizer, drawn), False))
        if task == "drills":
            groups.append((BARE_SHARE, examples(tokenizer, drawn, bare=True), True))
    return groups


def tensors(length, rows, device):
    """Tokens, seen, targets and weights, each [B, T]."""

    def grid(lines, fill, dtype):
        full = [line + [fill] * (length - len(line)) for line in lines]
        return torch.tensor(full, dtype=dtype, device=device)

    tokens = grid([row.tokens for row in rows], MASK, torch.long)
    seen = grid([[True] * len(row.tokens) for row in rows], False, torch.bool)
    targets = grid([row.targets for row in rows], 0, torch.long)
    weights = grid([row.weights for row in rows], 0.0, torch.float32)
    return tokens, seen, targets, weights


def rate(step, done):
    """Factor of the learning rate after `step` steps and a fraction `done` of the time."""
    decay = 1.0 if done < 0.5 else 1.0 - (1.0 - FLOOR) * (done - 0.5) / 0.5
    return min(1.0, (step + 1) / WARM_UP_STEPS) * max(FLOOR, decay)


def optimizers(net, options):
    matrices = [p for n, p in net.named_parameters() if p.dim() == 2 and n.startswith("blocks.")]
    chosen = {id(p) for p in matrices}
    others = [p for p in net.parameters() if id(p) not in chosen]
    adam = torch.optim.AdamW(others, lr=options.adam_lr, betas=(0.9, 0.98), weight_decay=0.0)
    return [(Muon(matrices, options.muon_lr), options.muon_lr), (adam, options.adam_lr)]


def main():
    options = arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    shipped = CRATE / "checkpoint"
    tokenizer = Tokenizer.from_file(str(options.tokenizer / "tokenizer.json"))
    rows = Rows(material(tokenizer, options), options.seed)
    batches = Batches(rows, options.tokens)
    if options.init:
        net = llada.load(options.init)
    else:
        net = llada.Llada(json.loads((shipped / "config.json").read_text()))
    net.to(options.device)
    forward = torch.compile(net, dynamic=False) if options.compile else net
    chosen = optimizers(net, options)
    average = {name: p.detach().clone() for name, p in net.named_parameters()}

    def write():
        llada.save(average, options.out, shipped, options.tokenizer)

    start = last_save = time.monotonic()
    step, recent = 0, []
    while (done := (time.monotonic() - start) / (60 * options.minutes)) < 1.0:
        # After the wording is learnt, the arithmetic gets more weight.
        rows.result_factor = 1.0 if done < 0.25 else RESULT_FACTOR
        share = rate(step, done)
        for optimizer, full in chosen:
            for group in optimizer.param_groups:
                group["lr"] = full * share
        loss = train_step(forward, batches, options.device)
        for optimizer, _ in chosen:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step += 1
        keep = min(options.ema, (1 + step) / (10 + step))
        with torch.no_grad():
            for name, parameter in net.named_parameters():
                average[name].lerp_(parameter, 1 - keep)
        recent.append(loss)
        if step % 20 == 0 or step == 1:
            minutes = (time.monotonic() - start) / 60
            mean = sum(recent) / len(recent)
            print(f"{minutes:6.1f} min  step {step:6d}  loss {mean:.4f}  rate {share:.3f}", flush=True)
            recent = []
        if time.monotonic() - last_save > 60 * options.save_every:
            write()
            last_save = time.monotonic()
    write()
    print(f"{step} steps, written to {options.out}")


def train_step(forward, batches, device):
    """Computes the gradients of one batch. Returns the weighted mean loss of its masked positions."""
    length, rows = batches.next()
    tokens, seen, targets, weights = tensors(length, rows, device)
    with torch.autocast(torch.device(device).type, torch.bfloat16):
        logits = forward(tokens, seen)
    losses = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")
    weights = weights.flatten()
    total = (losses * weights).sum() / weights.sum()
    total.backward()
    return float(total.detach())


if __name__ == "__main__":
    main()
