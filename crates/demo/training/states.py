"""Training examples: states that occur in decoding, built from problems.

A `Row` is a sequence of tokens, some of them masked, with a target and a weight for each position
(weight 0: no loss).
"""

import random
import re
from dataclasses import dataclass

from tokenizer import END, END_OF_TURN, MASK, chat

RESULT = re.compile(r"= (\d+(?:\.\d+)?)")
# What an answer to a conversation copies: names, arguments, and numbers of results.
COPIED = re.compile(r'(?<=")(\w+)(?=")|(?<=": )(\d+)|(?<=is |as |## )(\d+(?:\.\d+)?)')


@dataclass
class Example:
    prompt: list[int]  # ids after the chat template; empty for bare equations
    answer: list[int]  # ids including the end of the turn
    results: list[bool]  # which offsets of the answer belong to a result, or are copied


@dataclass
class Row:
    tokens: list[int]
    targets: list[int]
    weights: list[float]


def examples(tokenizer, problems, bare=False):
    """Encodes problems; `bare` omits the prompts."""
    answers = tokenizer.encode_batch([p["answer"] for p in problems], add_special_tokens=False)
    prompts = tokenizer.encode_batch([chat(p["prompt"]) for p in problems], add_special_tokens=False)
    encoded = []
    for problem, prompt, answer in zip(problems, prompts, answers, strict=True):
        spans = [match.span(1) for match in RESULT.finditer(problem["answer"])]
        if problem["task"] == "calls" and not spans:
            spans = [match.span() for match in COPIED.finditer(problem["answer"])]
        # A token may start with a blank, so it is a result if it ends inside a result.
        results = [any(a < end <= b for a, b in spans) for _, end in answer.offsets]
        head = [] if bare else prompt.ids
        encoded.append(Example(head, [*answer.ids, END_OF_TURN], [*results, False]))
    return encoded


def decoding_state(example, rng):
    """Clean tokens up to an offset p, then a band with masks, then a tail of masks only."""
    p = rng.randrange(len(example.answer))
    band = rng.randint(16, 48)
    ratio = 1.0 if rng.random() < 0.2 else rng.uniform(0.15, 1.0)
    tail = rng.randint(96, 192) if rng.random() < 0.12 else rng.randint(0, 64)
    text = padded(example.answer, p + band)
    masked = [offset >= p and rng.random() < ratio for offset in range(p + band)]
    if not any(masked):
        masked[p] = True
    row = masked_row(example, text, masked, [1.0] * len(text))
    row.tokens += [MASK] * tail
    row.targets += [MASK] * tail
    row.weights += [0.0] * tail
    return row


def random_masks(example, rng):
    """Masks 10 to 40 % of prompt and answer."""
    ratio = rng.uniform(0.1, 0.4)
    clean = example.prompt + example.answer
    masked = [rng.random() < ratio for _ in clean]
    merged = Example([], clean, [False] * len(example.prompt) + example.results)
    return masked_row(merged, clean, masked, [1.0] * len(clean))


def fine_tuning(example, rng):
    """LLaDA's objective: masks answer and padding with probability t and divides the loss by t."""
    text = padded(example.answer, len(example.answer) + rng.randint(0, 64))
    t = rng.uniform(0.02, 1.0)
    masked = [rng.random() < t for _ in text]
    return masked_row(example, text, masked, [1.0 / t] * len(text))


def equations(example, rng):
    """Masks each token of the results of equations with probability 0.7."""
    masked = [result and rng.random() < 0.7 for result in example.results]
    return masked_row(example, example.answer, masked, [1.0] * len(masked))


def padded(answer, length):
    return (answer + [END] * max(0, length - len(answer)))[:length]


def masked_row(example, text, masked, weights):
    """A row of prompt and text with loss at the masked tokens."""
    prompt = len(example.prompt)
    tokens = example.prompt + [MASK if m else t for t, m in zip(text, masked, strict=True)]
    weights = [w if m else 0.0 for w, m in zip(weights, masked, strict=True)]
    return Row(tokens, example.prompt + text, [0.0] * prompt + weights)


def with_results(row, example, factor):
    """Multiplies the weights of result tokens by `factor`."""
    start = len(example.prompt)
    for offset, result in enumerate(example.results):
        if result and start + offset < len(row.weights):
            row.weights[start + offset] *= factor
    return row


class Rows:
    """An endless, seeded stream of rows.

    `groups` is a list of (weight, examples, bare); bare groups yield equation rows.
    """

    KINDS = (decoding_state, random_masks, fine_tuning)
    SHARES = (75, 10, 15)

    def __init__(self, groups, seed):
        self.groups = groups
        self.rng = random.Random(seed)
        self.result_factor = 1.0

    def next(self):
        weights = [weight for weight, _, _ in self.groups]
        _, pool, bare = self.rng.choices(self.groups, weights)[0]
        example = self.rng.choice(pool)
        kind = equations if bare else self.rng.choices(self.KINDS, self.SHARES)[0]
        return with_results(kind(example, self.rng), example, self.result_factor)


class Batches:
    """Batches of a fixed number of tokens in a few fixed shapes. Rows are collected by length, and a
    batch is returned when it is full."""

    LENGTHS = (64, 96, 128, 192, 256, 384, 512)

    def __init__(self, rows, tokens, weights="weights"):
        self.weights = weights  # attribute of a row; a row is skipped if all its values are zero
        self.rows = rows
        self.tokens = tokens
        self.waiting = {length: [] for length in self.LENGTHS}

    def next(self):
        while True:
            row = self.rows.next()
            length = next((n for n in self.LENGTHS if len(row.tokens) <= n), None)
            if length is None or not any(getattr(row, self.weights)):
                continue
            self.waiting[length].append(row)
            if len(self.waiting[length]) == self.tokens // length:
                full, self.waiting[length] = self.waiting[length], []
                return length, full
