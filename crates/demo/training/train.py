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


def optimizers(net, options, layers):
    """Muon for the matrices whose names contain `layers`, AdamW for the rest, and their rates."""
    matrices = [p for n, p in net.named_parameters() if p.dim() == 2 and layers in n]
    chosen = {id(p) for p in matrices}
    others = [p for p in net.parameters() if id(p) not in chosen]
    adam = torch.optim.AdamW(others, lr=options.adam_lr, betas=(0.9, 0.98), weight_decay=0.0)
    muon = [(Muon(matrices, options.muon_lr), options.muon_lr)] if matrices else []
    return [*muon, (adam, options.adam_lr)]


class Run:
    """A model in training: its weights, their average, the optimizers and the progress."""

    def __init__(self, options, net, layers="blocks.", device="cpu"):
        """`layers` is what the names of matrices in layers contain."""
        self.options = options
        self.net = net
        self.chosen = optimizers(net, options, layers)
        self.average = {name: p.detach().clone() for name, p in net.named_parameters()}
        self.step = 0
        self.seconds = 0.0
        if options.state and options.state.exists():
            self.resume(torch.load(options.state, map_location=device))

    def done(self):
        """The fraction of the training that is done."""
        if self.options.steps:
            return self.step / self.options.steps
        return self.seconds / (60 * self.options.minutes)

    def advance(self, gradients):
        """One step. Returns what `gradients`, which computes them, returns."""
        share = rate(self.step, self.done())
        for optimizer, full in self.chosen:
            for group in optimizer.param_groups:
                group["lr"] = full * share
        loss = gradients()
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

    def save(self, write):
        """Writes the checkpoint folder by `write(average)`, and the state to resume from."""
        write(self.average)
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

    def train(self, gradients, write):
        """Steps until the training is done, with reports and saves. `gradients()` computes the
        gradients of a step and returns its losses by name."""
        last = last_save = time.monotonic()
        recent = []
        while self.done() < 1.0:
            recent.append(self.advance(gradients))
            now = time.monotonic()
            self.seconds, last = self.seconds + now - last, now
            if self.step % 20 == 0 or self.step == 1:
                self.report({name: sum(each[name] for each in recent) / len(recent) for name in recent[-1]})
                recent = []
            if now - last_save > 60 * self.options.save_every:
                self.save(write)
                last_save = now
        self.save(write)
        print(f"{self.step} steps, written to {self.options.out}")

    def report(self, losses):
        """Prints the mean losses of the last steps, and appends them to the curve."""
        share = rate(self.step, self.done())
        minutes = self.seconds / 60
        told = " ".join(f"{name} {loss:.4f}" for name, loss in losses.items())
        print(f"{minutes:6.1f} min  step {self.step:6d}  {told}  rate {share:.3f}", flush=True)
        if self.options.curve:
            new = not self.options.curve.exists()
            values = ",".join(f"{loss:.4f}" for loss in losses.values())
            with self.options.curve.open("a") as file:
                file.write(f"minutes,step,{','.join(losses)}\n" * new)
                file.write(f"{minutes:.2f},{self.step},{values}\n")


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
    net = net.to(options.device)
    run = Run(options, net, device=options.device)
    # A resumed run draws other rows than the first part did.
    rows = Rows(material(tokenizer, options), options.seed + run.step)
    batches = Batches(rows, options.tokens)
    forward = torch.compile(net, dynamic=False) if options.compile else net

    def gradients():
        # After the wording is learnt, the arithmetic gets more weight.
        rows.result_factor = 1.0 if run.done() < 0.25 and not options.init else RESULT_FACTOR
        return {"loss": train_step(forward, batches, options)}

    def write(average):
        llada.save(average, options.out, CRATE / "checkpoint", options.tokenizer)

    run.train(gradients, write)


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
