"""Training rows of the causal model: WeDLM's two streams (arXiv 2512.22737, section 4).

The clean stream holds the text once, causal, and learns the next token. The masked stream holds it
again in blocks: inside a block the tokens that are left come first by position and the masks after
them, each at its own position, and learn their own token. A block sees the clean text before it and
its own earlier places, as a window sees the cache and the tokens filled so far.
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
    blocks: list[int] = field(default_factory=list)  # number of the block, CLEAN in the clean stream
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
    """A row of an example whose answer has `ends` end tokens behind it; the results of equations
    weigh `factor`. Without `dual` it has the clean stream only."""
    text = example.prompt + example.answer + [END] * ends
    first = len(example.prompt)
    weight = [1.0] * first + [factor if r else 1.0 for r in example.results] + [1.0] * ends
    row = Row()
    for place, token in enumerate(text):
        following = place + 1
        learns = first <= following <= first + len(example.answer) - 1 or (not first and following < len(text))
        target = text[following] if following < len(text) else END
        row.add(token, place, CLEAN, target, ahead=weight[following] if learns else 0.0)
    if not dual:
        return row
    for start in range(first - first % BLOCK, len(text), BLOCK):
        places = range(start, min(start + BLOCK, len(text)))
        mine = [place for place in places if place >= first]
        hidden = masks(mine, rng)
        share = len(hidden) / len(mine)
        for place in places:
            if place not in hidden:
                row.add(text[place], place, start // BLOCK, text[place])
        for place in sorted(hidden):
            row.add(MASK, place, start // BLOCK, text[place], masked=weight[place] / share)
    return row


def masks(places, rng):
    """Which of a block's places are masks: half of the time any, as in the paper, else a state that
    a window meets, clean up to some place and from there on masks and some tokens."""
    if rng.random() < 0.5:
        return set(rng.sample(places, round(rng.random() * len(places))))
    behind = places[rng.randrange(len(places)) :]
    some = max(1, round(rng.uniform(0.3, 1.3) * len(behind)))
    return {behind[0], *rng.sample(behind, min(some, len(behind)))}


def visible(positions, blocks):
    """Which places see which: [B, N, N] from positions and block numbers, both [B, N]."""
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
