"""Trains the causal demo model and writes it as a Hugging Face folder.

    python train_causal.py --out checkpoint-new --minutes 90

It starts from the weights of the demo model. The schedule depends on the elapsed time: the first
share of the time uses only the clean stream, the rest both streams with half of the loss each (WeDLM,
arXiv 2512.22737, section 4).
"""

import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import causal
from muon import Muon
from problems import CRATE, problems
from states import Batches, examples
from streams import Rows, visible
from tokenizer import END
from train import MIX, RESULT_FACTOR, rate

EQUATIONS_SHARE = 4


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    parser.add_argument("--minutes", type=float, default=90.0, help="training time")
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


def train_step(net, batches):
    """Computes the gradients of one batch. Returns the losses of next tokens and of masks."""
    length, rows = batches.next()

    def grid(name, fill, dtype):
        lines = [getattr(row, name) for row in rows]
        return torch.tensor([line + [fill] * (length - len(line)) for line in lines], dtype=dtype)

    tokens, targets = grid("tokens", END, torch.long), grid("targets", END, torch.long)
    # Padding is a separate block that no other row sees.
    positions, blocks = grid("positions", 0, torch.long), grid("blocks", 1 << 20, torch.long)
    ahead, masked = grid("ahead", 0.0, torch.float32), grid("masked", 0.0, torch.float32)
    scored = (ahead + masked) > 0
    with torch.autocast("cpu", torch.bfloat16):
        logits = net(tokens, positions, visible(positions, blocks), scored)
    losses = F.cross_entropy(logits.float(), targets[scored], reduction="none")
    means = [(losses * w[scored]).sum() / w.sum() for w in (ahead, masked) if w.any()]
    (sum(means) / len(means)).backward()
    return [float(mean.detach()) for mean in means]


def optimizers(net, options):
    matrices = [p for n, p in net.named_parameters() if p.dim() == 2 and ".layers." in n]
    chosen = {id(p) for p in matrices}
    others = [p for p in net.parameters() if id(p) not in chosen]
    adam = torch.optim.AdamW(others, lr=options.adam_lr, betas=(0.9, 0.98), weight_decay=0.0)
    return [(Muon(matrices, options.muon_lr), options.muon_lr), (adam, options.adam_lr)]


def main():
    options = arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    tokenizer = Tokenizer.from_file(str(options.llada / "tokenizer.json"))
    rows = Rows(material(tokenizer, options), options.seed)
    batches = Batches(rows, options.tokens, weights="targets")
    net = causal.load(options.init) if options.init else causal.from_llada(options.llada)
    chosen = optimizers(net, options)
    average = {name: p.detach().clone() for name, p in net.named_parameters()}
    start = last_save = time.monotonic()
    step, recent = 0, []
    while (done := (time.monotonic() - start) / (60 * options.minutes)) < 1.0:
        rows.dual = done >= options.clean
        rows.result_factor = 1.0 if done < 0.1 else RESULT_FACTOR
        share = rate(step, done)
        for optimizer, full in chosen:
            for group in optimizer.param_groups:
                group["lr"] = full * share
        recent.append(train_step(net, batches))
        for optimizer, _ in chosen:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        step += 1
        keep = min(options.ema, (1 + step) / (10 + step))
        with torch.no_grad():
            for name, parameter in net.named_parameters():
                average[name].lerp_(parameter, 1 - keep)
        if step % 20 == 0 or step == 1:
            minutes = (time.monotonic() - start) / 60
            means = [f"{sum(losses) / len(losses):.4f}" for losses in zip(*recent)]
            print(f"{minutes:6.1f} min  step {step:6d}  loss {' '.join(means)}  rate {share:.3f}", flush=True)
            recent = []
        if time.monotonic() - last_save > 60 * options.save_every:
            causal.save(average, net.config, options.out, options.llada)
            last_save = time.monotonic()
    causal.save(average, net.config, options.out, options.llada)
    print(f"{step} steps, written to {options.out}")


if __name__ == "__main__":
    main()
