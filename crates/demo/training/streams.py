"""Training examples of the causal model: WeDLM's two streams (arXiv 2512.22737, section 4).

The clean stream contains the text once, with causal attention, and learns the next token. The masked
stream contains the text again in blocks: in a block the unmasked tokens come first, in order of
position, followed by the masks, each at its own position. A mask learns its own token. A block sees
the clean text before it and its own earlier rows, like a decoding window sees the cache and the
committed tokens.
"""

import random
from dataclasses import dataclass, field

import torch

from tokenizer import END, MASK

BLOCK = 32
CLEAN = -1


@dataclass
class Row:
    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)  # block number, CLEAN in the clean stream
    targets: list[int] = field(default_factory=list)
    ahead: list[float] = field(default_factory=list)  # weight of the next-token loss
    masked: list[float] = field(default_factory=list)  # weight of the masks' loss

    def add(self, token, position, block, target, ahead=0.0, masked=0.0):
        self.tokens.append(token)
        self.positions.append(position)
        self.blocks.append(block)
        self.targets.append(target)
        self.ahead.append(ahead)
        self.masked.append(masked)


def streams(example, rng, ends, factor, dual):
    """A row of an example with `ends` end tokens after the answer. Results of equations have the
    weight `factor`. Without `dual` the row has only the clean stream."""
    text = example.prompt + example.answer + [END] * ends
    first = len(example.prompt)
    weight = [1.0] * first + [factor if r else 1.0 for r in example.results] + [1.0] * ends
    row = Row()
    for position, token in enumerate(text):
        following = position + 1
        learns = first <= following <= first + len(example.answer) - 1 or (not first and following < len(text))
        target = text[following] if following < len(text) else END
        row.add(token, position, CLEAN, target, ahead=weight[following] if learns else 0.0)
    if not dual:
        return row
    for start in range(first - first % BLOCK, len(text), BLOCK):
        positions = range(start, min(start + BLOCK, len(text)))
        maskable = [position for position in positions if position >= first]
        hidden = masks(maskable, rng)
        share = len(hidden) / len(maskable)
        for position in positions:
            if position not in hidden:
                row.add(text[position], position, start // BLOCK, text[position])
        for position in sorted(hidden):
            loss = weight[position] / share
            row.add(MASK, position, start // BLOCK, text[position], masked=loss)
    return row


def masks(positions, rng):
    """The masked positions of a block. In half of the cases a random set, as in the paper; otherwise
    a state of a decoding window: clean up to some position, then masks and some tokens."""
    if rng.random() < 0.5:
        return set(rng.sample(positions, round(rng.random() * len(positions))))
    after = positions[rng.randrange(len(positions)) :]
    some = max(1, round(rng.uniform(0.3, 1.3) * len(after)))
    return {after[0], *rng.sample(after, min(some, len(after)))}


def visible(positions, blocks):
    """The attention mask [B, N, N] from positions and block numbers, both [B, N]."""
    order = torch.arange(blocks.shape[1], device=blocks.device)
    earlier = order[None, :, None] >= order[None, None, :]
    query, key = blocks[:, :, None], blocks[:, None, :]
    before = (query != CLEAN) & (key == CLEAN) & (positions[:, None, :] < BLOCK * query)
    return (earlier & (query == key)) | before


class Rows:
    """An endless, seeded stream of rows; `groups` is a list of (weight, examples)."""

    def __init__(self, groups, seed):
        self.groups = groups
        self.rng = random.Random(seed)
        self.result_factor = 1.0
        self.dual = True

    def next(self):
        weights = [weight for weight, _ in self.groups]
        example = self.rng.choice(self.rng.choices(self.groups, weights)[0][1])
        ends = self.rng.randint(0, BLOCK) if self.dual else 0
        return streams(example, self.rng, ends, self.result_factor, self.dual)
