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
MIX = {
    "sums": (35, 120_000),
    "snippets": (25, 60_000),
    "lists": (9, 40_000),
    "calls": (20, 90_000),
    "drills": (7, 30_000),
}
BARE_SHARE = 4
WARM_UP_STEPS = 60
FLOOR = 0.03
RESULT_FACTOR = 4.0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    parser.add_argument("--minutes", type=float, default=120.0, help="training time")
    parser.add_argument("--steps", type=int, help="number of steps, instead of the training time")
    parser.add_argument("--mix", type=json.loads, default={}, help='other shares, as {"sums": 40}')
    parser.add_argument("--state", type=Path, help="file to resume from and to save the state to")
    parser.add_argument("--curve", type=Path, help="CSV file for the losses")
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
    parser.add_argument("--f32", action="store_true", help="no bf16 autocast")
    parser.add_argument("--compile", action="store_true", help="compile the model")
    parser.add_argument("--save-every", type=float, default=10.0, help="minutes between saves")
    return parser.parse_args()


def material(tokenizer, options):
    groups = []
    for task, (share, count) in MIX.items():
        share = options.mix.get(task, share)
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


class Run:
    """A model in training: its weights, their average, the optimizers and the progress."""

    def __init__(self, options, net):
        self.options = options
        self.net = net
        self.forward = torch.compile(net, dynamic=False) if options.compile else net
        self.chosen = optimizers(net, options)
        self.average = {name: p.detach().clone() for name, p in net.named_parameters()}
        self.step = 0
        self.seconds = 0.0
        if options.state and options.state.exists():
            self.resume(torch.load(options.state, map_location=options.device))

    def done(self):
        """The fraction of the training that is done."""
        if self.options.steps:
            return self.step / self.options.steps
        return self.seconds / (60 * self.options.minutes)

    def advance(self, batches):
        """One step. Returns its loss."""
        share = rate(self.step, self.done())
        for optimizer, full in self.chosen:
            for group in optimizer.param_groups:
                group["lr"] = full * share
        loss = train_step(self.forward, batches, self.options)
        for optimizer, _ in self.chosen:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        keep = min(self.options.ema, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for name, parameter in self.net.named_parameters():
                self.average[name].lerp_(parameter, 1 - keep)
        return loss

    def resume(self, state):
        self.net.load_state_dict(state["weights"])
        self.average = state["average"]
        for (optimizer, _), saved in zip(self.chosen, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.step, self.seconds = state["step"], state["seconds"]

    def save(self):
        """Writes the checkpoint folder, and the state from which the training can resume."""
        llada.save(self.average, self.options.out, CRATE / "checkpoint", self.options.tokenizer)
        if self.options.state:
            state = {
                "weights": self.net.state_dict(),
                "average": self.average,
                "optimizers": [optimizer.state_dict() for optimizer, _ in self.chosen],
                "step": self.step,
                "seconds": self.seconds,
            }
            partial = self.options.state.with_suffix(".partial")
            torch.save(state, partial)
            partial.replace(self.options.state)


def main():
    options = arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    tokenizer = Tokenizer.from_file(str(options.tokenizer / "tokenizer.json"))
    if options.init:
        net = llada.load(options.init)
    else:
        net = llada.Llada(json.loads((CRATE / "checkpoint" / "config.json").read_text()))
    run = Run(options, net.to(options.device))
    # A resumed run draws other rows than the first part did.
    rows = Rows(material(tokenizer, options), options.seed + run.step)
    batches = Batches(rows, options.tokens)
    last = last_save = time.monotonic()
    recent = []
    while run.done() < 1.0:
        # After the wording is learnt, the arithmetic gets more weight.
        rows.result_factor = 1.0 if run.done() < 0.25 and not options.init else RESULT_FACTOR
        recent.append(run.advance(batches))
        now = time.monotonic()
        run.seconds, last = run.seconds + now - last, now
        if run.step % 20 == 0 or run.step == 1:
            report(run, sum(recent) / len(recent))
            recent = []
        if now - last_save > 60 * options.save_every:
            run.save()
            last_save = now
    run.save()
    print(f"{run.step} steps, written to {options.out}")


def report(run, loss):
    """Prints the mean loss of the last steps, and appends it to the curve."""
    share = rate(run.step, run.done())
    minutes = run.seconds / 60
    print(f"{minutes:6.1f} min  step {run.step:6d}  loss {loss:.4f}  rate {share:.3f}", flush=True)
    if run.options.curve:
        new = not run.options.curve.exists()
        with run.options.curve.open("a") as file:
            file.write("minutes,step,loss\n" * new + f"{minutes:.2f},{run.step},{loss:.4f}\n")


def train_step(forward, batches, options):
    """Computes the gradients of one batch. Returns the weighted mean loss of its masked positions."""
    length, rows = batches.next()
    tokens, seen, targets, weights = tensors(length, rows, options.device)
    # A compiled model has fixed shapes, so that it gives the logits of all positions.
    scored = torch.ones_like(seen) if options.compile else weights > 0
    kind = torch.device(options.device).type
    with torch.autocast(kind, torch.bfloat16, enabled=not options.f32):
        logits = forward(tokens, seen, None if options.compile else scored)
    targets, weights = targets[scored], weights[scored]
    losses = F.cross_entropy(logits.float().flatten(0, -2), targets, reduction="none")
    total = (losses * weights).sum() / weights.sum()
    total.backward()
    return float(total.detach())


if __name__ == "__main__":
    main()
