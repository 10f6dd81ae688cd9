"""Training examples of the block-causal model: SDAR's two streams (arXiv 2510.06303), as in BD3-LM
(arXiv 2503.09573).

The clean stream contains the text once, with block-causal attention. The masked stream contains the
blocks of the answer again: a block sees the clean blocks before it and all of itself. Some blocks are
those of a check (S2D2, arXiv 2603.25702): blocks of one position, in which the token at a position sees
the tokens of the block before it, and a mask there sees the same and itself.
"""

import random
from dataclasses import dataclass, field

import torch

from sdar import BLOCK
from streams import masks
from tokenizer import END, MASK

CLEAN, MASKED, GIVEN, CHECKED, PADDING = range(5)
CHECK_SHARE = 0.25
# Highest factor 1 / t of a mask's loss, with t the share of a block that is masked.
MOST_WEIGHT = 4.0


@dataclass
class Row:
    tokens: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def add(self, token, position, kind, target=END, weight=0.0):
        self.tokens.append(token)
        self.positions.append(position)
        self.kinds.append(kind)
        self.targets.append(target)
        self.weights.append(weight)


def row_of(example, rng, factor):
    """A row of an example, filled with end tokens up to the end of a block and, in half of the cases,
    of the next one. Results of equations have the weight `factor`."""
    text = example.prompt + example.answer
    text += [END] * (-len(text) % BLOCK + rng.choice((0, BLOCK)))
    first = len(example.prompt)
    answer = [factor if result else 1.0 for result in example.results]
    weight = [1.0] * first + answer + [1.0] * (len(text) - first - len(answer))
    row = Row()
    for position, token in enumerate(text):
        row.add(token, position, CLEAN)
    for start in range(first - first % BLOCK, len(text), BLOCK):
        positions = range(start, start + BLOCK)
        maskable = [position for position in positions if position >= first]
        if rng.random() < CHECK_SHARE:
            for position in positions:
                row.add(text[position], position, GIVEN)
            for position in maskable:
                row.add(MASK, position, CHECKED, text[position], weight[position])
            continue
        hidden = masks(maskable, rng) or {rng.choice(maskable)}
        scale = min(MOST_WEIGHT, len(maskable) / len(hidden))
        for position in positions:
            if position in hidden:
                row.add(MASK, position, MASKED, text[position], scale * weight[position])
            else:
                row.add(text[position], position, MASKED)
    return row


def visible(positions, kinds):
    """The attention mask [B, N, N] from positions and kinds, both [B, N]."""
    order = torch.arange(kinds.shape[1], device=kinds.device)
    itself = order[:, None] == order[None, :]
    query, key = kinds[:, :, None], kinds[:, None, :]
    at, of = positions[:, :, None], positions[:, None, :]
    block, source = at // BLOCK, of // BLOCK
    before = (key == CLEAN) & (query != PADDING) & (source < block)
    inside = block == source
    same = (query == key) & (query <= MASKED) & inside
    given = (key == GIVEN) & inside & (((query == GIVEN) & (of <= at)) | ((query == CHECKED) & (of < at)))
    return itself | before | same | given


class Rows:
    """An endless, seeded stream of rows; `groups` is a list of (weight, examples)."""

    def __init__(self, groups, seed):
        self.groups = groups
        self.rng = random.Random(seed)
        self.result_factor = 1.0

    def next(self):
        weights = [weight for weight, _ in self.groups]
        example = self.rng.choice(self.rng.choices(self.groups, weights)[0][1])
        return row_of(example, self.rng, self.result_factor)
