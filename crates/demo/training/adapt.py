"""Adapts an autoregressive model to masks: the causal recipe of `train_causal.py` on a real vocabulary.

    python adapt.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf --out out --steps 100

The texts are the model's own greedy answers to short generated prompts, so that agreement with them is
agreement with the original. Both streams of `streams.py` share the loss. The model's weights are fixed,
low-rank additions are trained (`lora.py`). Written are the measures before and after as JSON and, with
`--out`, a folder that loads as WeDLM's architecture.
"""

import argparse
import hashlib
import json
import random
from pathlib import Path

import torch
from safetensors.torch import save_file

import lora
from states import Batches, Example
from streams import Rows
from tokenizer import MASK
from train import Run
from train_causal import train_step

END_OF_TEXT, END_OF_TURN = 0, 2
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
TOPICS = (
    "the sea, rain, a bicycle, bread, the moon, a library, winter, music, a garden, trains, honey, maps, "
    "a river, chess, paper, the sun, cats, glass, a bridge, tea, mountains, clocks, wool, a market, salt, "
    "dogs, snow, a kite, coffee, the wind, a school, summer, dancing, a forest, ships, milk, stars, an island, "
    "football, ink, fire, birds, stone, a tower, soup, deserts, mirrors, silk, a village, pepper"
).split(", ")
REQUESTS = (
    "Write one sentence about {}.",
    "What is special about {}?",
    "Name three words that go with {}.",
    "Why do people like {}?",
    "Write a short poem about {}.",
    "Explain {} to a child.",
)
WINDOW = 8
THRESHOLDS = (0.5, 0.7, 0.9)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gguf", type=Path, required=True, help="file of Llama's architecture")
    parser.add_argument("--out", type=Path, help="output folder")
    parser.add_argument("--json", type=Path, help="file for the measures")
    parser.add_argument("--minutes", type=float, default=30.0, help="training time")
    parser.add_argument("--steps", type=int, help="number of steps, instead of the training time")
    parser.add_argument("--state", type=Path, help="file to resume from and to save the state to")
    parser.add_argument("--curve", type=Path, help="CSV file for the losses")
    parser.add_argument("--texts", type=Path, help="file to keep the answers in")
    parser.add_argument("--train", type=int, default=128, help="texts to train on")
    parser.add_argument("--held-out", type=int, default=16, help="texts to measure")
    parser.add_argument("--length", type=int, default=40, help="tokens of a text")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=576, help="rows per batch")
    parser.add_argument("--adam-lr", type=float, default=2e-3)
    parser.add_argument("--ema", type=float, default=0.9)
    parser.add_argument("--threads", type=int, default=0, help="0: one per processor")
    parser.add_argument("--bf16", action="store_true", help="bf16 autocast")
    parser.add_argument("--save-every", type=float, default=5.0, help="minutes between saves")
    parser.set_defaults(muon_lr=0.0)
    return parser.parse_args()


def prompts(count, seed):
    """Distinct requests, and half as many sums, in random order."""
    rng = random.Random(seed)
    texts = [request.format(topic) for request in REQUESTS for topic in TOPICS]
    texts += [f"What is {rng.randint(1, 60)} plus {rng.randint(1, 39)}?" for _ in range(len(texts) // 2)]
    texts = sorted(set(texts))
    rng.shuffle(texts)
    return [
        f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        for text in texts[:count]
    ]


@torch.no_grad()
def answers(net, asked, length):
    """The greedy answers to prompts, lists of ids, up to the end of the turn: one batch, padded left."""
    longest = max(map(len, asked))
    pads = torch.tensor([longest - len(ids) for ids in asked])
    tokens = torch.tensor([[END_OF_TEXT] * (longest - len(ids)) + ids for ids in asked])
    caches = [[] for _ in net.layers]
    order = torch.arange(longest)
    seen = (order[None, :, None] >= order[None, None, :]) & (order[None, None, :] >= pads[:, None, None])
    seen = seen | (order[:, None] == order[None, :])
    last = torch.zeros_like(tokens, dtype=torch.bool)
    last[:, -1] = True
    positions = (order[None, :] - pads[:, None]).clamp(min=0)
    written = []
    for step in range(length):
        tokens = net(tokens, positions, seen, last, caches).argmax(-1, keepdim=True)
        written.append(tokens)
        count = longest + step + 1
        seen = (torch.arange(count)[None, None, :] >= pads[:, None, None]).expand(-1, 1, -1)
        positions = longest + step - pads[:, None]
        last = torch.ones_like(tokens, dtype=torch.bool)
    found = torch.cat(written, 1).tolist()
    return [ids[: ids.index(END_OF_TURN) + 1] if END_OF_TURN in ids else ids for ids in found]


def texts(net, tokenizer, options):
    """Examples: prompts with the model's answers, kept in a file."""
    if options.texts and options.texts.exists():
        drawn = json.loads(options.texts.read_text())
    else:
        asked = [tokenizer.encode(text).ids for text in prompts(options.train + options.held_out, options.seed)]
        drawn = []
        for start in range(0, len(asked), 16):
            some = asked[start : start + 16]
            drawn += zip(some, answers(net, some, options.length), strict=True)
            print(f"{len(drawn)} of {len(asked)} texts", flush=True)
        if options.texts:
            options.texts.write_text(json.dumps(drawn))
    return [Example(prompt, answer, [False] * len(answer)) for prompt, answer in drawn]


@torch.no_grad()
def windows(net, example):
    """For each whole window of the answer: which masks find the text's token, and how sure they are; and
    which tokens of the answer the rows before them predict."""
    text, first = example.prompt + example.answer, len(example.prompt)
    starts = range(first, len(text) - WINDOW + 1, WINDOW)
    masks = [position for start in starts for position in range(start, start + WINDOW)]
    positions = torch.tensor([[*range(len(text)), *masks]])
    blocks = torch.tensor([[-1] * len(text) + [start for start in starts for _ in range(WINDOW)]])
    order = torch.arange(positions.shape[1])
    query, key = blocks[:, :, None], blocks[:, None, :]
    seen = (query == key) & (order[:, None] >= order[None, :])
    seen = seen | ((query >= 0) & (key < 0) & (positions[:, None, :] < query))
    tokens = torch.tensor([text + [MASK] * len(masks)])
    logits = net(tokens, positions, seen, torch.ones_like(tokens, dtype=torch.bool))
    best = logits.softmax(-1).max(-1)
    after = best.indices[first - 1 : len(text) - 1] == torch.tensor(text[first:])
    right = best.indices[len(text) :] == torch.tensor(text)[masks]
    return right.view(-1, WINDOW), best.values[len(text) :].view(-1, WINDOW), after


def measures(net, examples):
    """What the net knows of held-out texts, tokens before a window given, in percent and tokens."""
    found = [windows(net, example) for example in examples if len(example.answer) >= WINDOW]
    right, sure = (torch.cat([each[at] for each in found]) for at in (0, 1))
    after = torch.cat([each[2] for each in found]).float().mean()
    result = {
        "windows": len(right),
        "next token as the original, %": round(100 * float(after), 1),
        "mask as the original by its place in the window, %": [
            round(100 * float(share), 1) for share in right.float().mean(0)
        ],
        # A check against the original accepts these and one token of its own.
        "leading masks that are right": round(float(right.long().cumprod(1).sum(1).float().mean()), 2),
        "thresholds": {},
    }
    for threshold in THRESHOLDS:
        taken = (sure >= threshold).long()
        taken[:, 0] = 1
        taken = taken.cumprod(1)
        agreed = float((taken * right).sum() / taken.sum())
        each = float(taken.sum() / len(taken))
        result["thresholds"][threshold] = {
            "tokens per forward": round(each, 2),
            "as the original, %": round(100 * agreed, 1),
        }
    return result


def write(net, tokenizer, folder):
    """A folder with bf16 weights, configuration and tokenizer; returns the checksum of the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: t.to(torch.bfloat16).contiguous() for name, t in sorted(net.checkpoint().items())}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = net.config | {
        "architectures": ["WeDLMForCausalLM"],
        "model_type": "wedlm",
        "attention_bias": False,
        "qk_norm": False,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "mask_token_id": MASK,
        "eos_token_id": END_OF_TURN,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"))
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def main():
    options = arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    net, tokenizer = lora.load(options.gguf, options.rank)
    examples = texts(net, tokenizer, options)
    held_out, trained = examples[: options.held_out], examples[options.held_out :]
    # No matrix is Muon's: the additions are too thin for it.
    run = Run(options, net, layers=" ")
    result = {"before": measures(net, held_out)} if not run.step else {}
    print(json.dumps(result), flush=True)
    rows = Rows([(1, trained)], options.seed + run.step)
    batches = Batches(rows, options.tokens, weights="targets")
    run.train(lambda: train_step(net, batches, options.bf16), lambda _: None)
    net.load_state_dict(run.average)
    result |= {"steps": run.step, "minutes": round(run.seconds / 60, 1), "after": measures(net, held_out)}
    if options.out:
        result["sha256"] = write(net, tokenizer, options.out)
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
