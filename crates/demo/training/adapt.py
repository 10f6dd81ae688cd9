"""Trains a causal language model's adapter for masks: the model guesses the tokens after the next one.

    python adapt.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf --chats chats.jsonl --out out --minutes 60

The chats are the model's own (`chats.py`). A window of masks stands after a place of an answer; the row
of a mask learns the token that follows its position, as rows of text do, from the true text before the
window. Only rows of masks are changed (`lora.py`), so that every guess can be checked by the model itself.
Written are an adapter in PEFT's files and the measures before and after as JSON.
"""

import argparse
import json
import random
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

import lora
from train import Run

# A token of the vocabulary that no text has, `<empty_output>`.
MASK = 16
# Masks of a window.
WINDOW = 6


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gguf", type=Path, required=True, help="file of Llama's architecture")
    parser.add_argument("--chats", type=Path, required=True, help="file of chats.py")
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    parser.add_argument("--minutes", type=float, default=60.0, help="training time")
    parser.add_argument("--steps", type=int, help="number of steps, instead of the training time")
    parser.add_argument("--state", type=Path, help="file to resume from and to save the state to")
    parser.add_argument("--curve", type=Path, help="CSV file for the losses")
    parser.add_argument("--held-out", type=int, default=100, help="chats to measure, the first of the file")
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--windows", type=int, default=64, help="windows of an answer")
    parser.add_argument("--answers", type=int, default=4, help="answers of a step")
    parser.add_argument("--adam-lr", type=float, default=2e-3)
    parser.add_argument("--ema", type=float, default=0.99)
    parser.add_argument("--threads", type=int, default=0, help="0: one per processor")
    parser.add_argument("--save-every", type=float, default=5.0, help="minutes between saves")
    parser.set_defaults(muon_lr=0.0)
    return parser.parse_args()


def read(path, tokenizer):
    """Pairs of a prompt's and an answer's ids; an answer has at least a window and a token."""
    pairs = []
    for line in path.read_text().splitlines():
        chat = json.loads(line)
        prompt, answer = (tokenizer.encode(chat[part]).ids for part in ("prompt", "answer"))
        if len(answer) > WINDOW + 1 and len(prompt) + len(answer) < 600:
            pairs.append((prompt, answer))
    return pairs


def guesses(net, pair, starts):
    """Logits [W, WINDOW, V] of windows that stand after the first `starts` [W] tokens of a text, and the
    text's tokens [W, WINDOW] that follow the masks' positions."""
    text = torch.tensor(pair[0] + pair[1])
    _, caches = net.text(text)
    starts = torch.tensor(starts)
    positions = (starts[:, None] + torch.arange(WINDOW)).flatten()
    window = torch.arange(len(starts)).repeat_interleave(WINDOW)
    order = torch.arange(len(positions))
    before = torch.arange(len(text))[None] < starts.repeat_interleave(WINDOW)[:, None]
    own = (window[:, None] == window[None]) & (order[:, None] >= order[None])
    logits = net.masks(caches, positions, torch.cat([before, own], 1))
    return logits.view(len(starts), WINDOW, -1), text[positions + 1].view(-1, WINDOW)


def places(pair):
    """The starts of all windows whose tokens lie in the answer."""
    return range(len(pair[0]) + 1, len(pair[0]) + len(pair[1]) - WINDOW)


def step(net, pairs, options, rng):
    """Computes the gradients of some answers. Returns the mean losses of the first and the last mask."""
    first = last = 0.0
    for pair in rng.choices(pairs, k=options.answers):
        some = places(pair)
        logits, targets = guesses(net, pair, sorted(rng.sample(some, min(options.windows, len(some)))))
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(-1, WINDOW)
        (losses.mean() / options.answers).backward()
        first += float(losses[:, 0].mean().detach()) / options.answers
        last += float(losses[:, -1].mean().detach()) / options.answers
    return {"first": first, "last": last}


@torch.no_grad()
def measures(net, pairs):
    """The share of masks that find the model's token, by their place in the window, and the mean run of
    right ones from the first on."""
    right = []
    for pair in pairs:
        logits, targets = guesses(net, pair, list(places(pair))[::5])
        right.append(logits.argmax(-1) == targets)
    right = torch.cat(right).float()
    return {
        "windows": len(right),
        "masks right by place, %": [round(100 * float(share), 1) for share in right.mean(0)],
        "leading masks right": round(float(right.cumprod(1).sum(1).mean()), 3),
    }


def write(net, options):
    """An adapter in PEFT's files, weights in f16."""
    options.out.mkdir(parents=True, exist_ok=True)
    save_file(net.adapter(), options.out / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": "HuggingFaceTB/SmolLM2-135M-Instruct",
        "r": options.rank,
        "lora_alpha": options.rank,
        "target_modules": sorted({name.rsplit(".", 1)[1] for name in lora.MATRICES.values()}),
        "trainable_token_indices": {"embed_tokens": [MASK]},
        "mask_token_id": MASK,
    }
    (options.out / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")


def main():
    options = arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    net, tokenizer = lora.load(options.gguf, options.rank)
    pairs = read(options.chats, tokenizer)
    held_out, trained = pairs[: options.held_out], pairs[options.held_out :]
    print(f"{len(trained)} answers, {sum(len(answer) for _, answer in trained)} tokens", flush=True)
    # No matrix is Muon's: the additions are too thin for it.
    run = Run(options, net, layers=" ")
    rng = random.Random(options.seed + run.step)
    result = {"before": measures(net, held_out)} if not run.step else {}

    def save(average):
        trained = {name: p.detach().clone() for name, p in net.named_parameters()}
        net.load_state_dict(average)
        write(net, options)
        net.load_state_dict(trained)

    run.train(lambda: step(net, trained, options, rng), save)
    net.load_state_dict(run.average)
    result |= {"steps": run.step, "minutes": round(run.seconds / 60, 1), "after": measures(net, held_out)}
    print(json.dumps(result, indent=2))
    (options.out / "measures.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
