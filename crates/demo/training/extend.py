"""Teaches a demo model to answer greetings, and keeps what it knows.

    python extend.py --model ../checkpoint --out out --minutes 25

Greetings are learnt with cross entropy. On states of the problems, the loss is cross entropy and the
divergence from the model as it was (learning without forgetting, arXiv 1606.09282).
"""

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import blocks
import causal
import model as llada
import states
import streams
import train
import train_causal
import train_sdar
from greetings import greetings
from problems import CRATE, problems

# Weight of each kind of problem in a batch, and the number of problems generated.
MIX = {
    "sums": (35, 20_000),
    "snippets": (25, 15_000),
    "lists": (9, 8_000),
    "calls": (45, 30_000),
    "drills": (5, 5_000),
}
GREETINGS = 20_000


class Full:
    """LLaDA's architecture."""

    @staticmethod
    def batches(pools, seed, tokens):
        return states.Batches(states.Rows([(*pool, False) for pool in pools], seed), tokens)

    load = staticmethod(llada.load)

    @staticmethod
    def save(weights, net, folder):
        llada.save(weights, folder, CRATE / "checkpoint", CRATE / "checkpoint")

    @staticmethod
    def inputs(length, rows):
        tokens, seen, targets, weights = train.tensors(length, rows, "cpu")
        scored = weights > 0
        return (tokens, seen, scored), targets[scored], weights[scored]


class TwoStreams:
    """WeDLM's architecture. Next tokens and masks have equal parts in the loss."""

    @staticmethod
    def batches(pools, seed, tokens):
        return states.Batches(streams.Rows(pools, seed), tokens, weights="targets")

    load = staticmethod(causal.load)

    @staticmethod
    def save(weights, net, folder):
        causal.save(weights, net.config, folder, CRATE / "checkpoint")

    @staticmethod
    def inputs(length, rows):
        tokens, positions, of_block, targets, ahead, masked = train_causal.tensors(length, rows)
        weights = ahead / ahead.sum().clamp(min=1) + masked / masked.sum().clamp(min=1)
        scored = weights > 0
        return (tokens, positions, streams.visible(positions, of_block), scored), targets[scored], weights[scored]


class Blocks(TwoStreams):
    """SDAR's architecture."""

    @staticmethod
    def batches(pools, seed, tokens):
        return states.Batches(blocks.Rows(pools, seed), tokens)

    @staticmethod
    def inputs(length, rows):
        tokens, positions, kinds, targets, weights = train_sdar.tensors(length, rows)
        scored = weights > 0
        return (tokens, positions, blocks.visible(positions, kinds), scored), targets[scored], weights[scored]


KINDS = {"llada": Full, "wedlm": TwoStreams, "sdar": Blocks}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="folder of the model")
    parser.add_argument("--init", type=Path, help="folder with the weights of an earlier run")
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    parser.add_argument("--minutes", type=float, default=25.0, help="training time")
    parser.add_argument("--steps", type=int, help="number of steps, instead of the training time")
    parser.add_argument("--curve", type=Path, help="CSV file for the losses")
    parser.add_argument("--keep", type=float, default=4.0, help="weight of the problems")
    parser.add_argument("--adam-lr", type=float, default=3e-4)
    parser.add_argument("--ema", type=float, default=0.995)
    parser.add_argument("--tokens", type=int, default=3072, help="tokens of a batch of problems")
    parser.add_argument("--new-tokens", type=int, default=768, help="tokens of a batch of greetings")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0, help="0: one per processor")
    parser.add_argument("--save-every", type=float, default=5.0, help="minutes between saves")
    return parser.parse_args()


def entropy(kind, net, batch):
    """The weighted mean cross entropy of the targets."""
    inputs, targets, weights = kind.inputs(*batch)
    losses = F.cross_entropy(net(*inputs).float(), targets, reduction="none")
    return (losses * weights).sum() / weights.sum()


def losses_of_old(kind, net, before, batch):
    """The weighted means of the divergence from the model before, and of the cross entropy."""
    inputs, targets, weights = kind.inputs(*batch)
    with torch.no_grad():
        wanted = before(*inputs).float().log_softmax(-1)
    found = net(*inputs).float().log_softmax(-1)
    diverged = F.kl_div(found, wanted, log_target=True, reduction="none").sum(-1)
    missed = F.nll_loss(found, targets, reduction="none")
    return ((loss * weights).sum() / weights.sum() for loss in (diverged, missed))


def main():
    options = arguments()
    options.state = None
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    tokenizer = Tokenizer.from_file(str(CRATE / "checkpoint" / "tokenizer.json"))
    kind = KINDS[json.loads((options.model / "config.json").read_text())["model_type"]]
    net, before = kind.load(options.init or options.model), kind.load(options.model)
    drawn = {task: problems(task, 100 + options.seed, count) for task, (_, count) in MIX.items()}
    pools = [(MIX[task][0], states.examples(tokenizer, each)) for task, each in drawn.items()]
    old = kind.batches(pools, options.seed, options.tokens)
    old.rows.result_factor = train.RESULT_FACTOR
    chats = greetings(tokenizer, options.seed, GREETINGS, drawn)
    new = kind.batches([(1, chats)], options.seed, options.new_tokens)
    # Muon's steps are too large for weights that shall stay.
    run = train.Run(options, net, layers="(none)")

    def gradients():
        with torch.autocast("cpu", torch.bfloat16):
            kept, known = losses_of_old(kind, net, before, old.next())
            learnt = entropy(kind, net, new.next())
            (options.keep * (kept + known) + learnt).backward()
        losses = {"kept": kept, "known": known, "learnt": learnt}
        return {name: float(loss.detach()) for name, loss in losses.items()}

    run.train(gradients, lambda average: kind.save(average, net, options.out))


if __name__ == "__main__":
    main()
