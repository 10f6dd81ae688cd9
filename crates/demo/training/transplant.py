"""Initial causal weights that know what the full-attention weights have learnt since the causal ones
came from them: causal weights, plus the difference of the full-attention weights.

    python transplant.py --base BASE --causal CAUSAL --after ../checkpoint --out start

BASE has the full-attention weights and the tokenizer of that time, CAUSAL the causal weights. Tokens
that `appended.py` adds to BASE start as the means of their pieces on both sides.
"""

import argparse
from pathlib import Path

import torch
from tokenizers import Tokenizer

import causal
from appended import appended


def with_rows(net, pieces):
    """The causal model with rows for appended tokens: the means of their pieces' rows."""
    for row, parts in sorted(pieces.items()):
        for table in (net.model.embed_tokens.weight, net.lm_head.weight):
            table.data[row] = table.data[parts].mean(0)
    return net


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", type=Path, required=True, help="full attention, before")
    parser.add_argument("--causal", type=Path, required=True, help="causal weights of that time")
    parser.add_argument("--after", type=Path, required=True, help="full attention, after")
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    options = parser.parse_args()
    _, pieces = appended(Tokenizer.from_file(str(options.base / "tokenizer.json")))
    before = with_rows(causal.from_llada(options.base), pieces)
    after = causal.from_llada(options.after)
    net = with_rows(causal.load(options.causal), pieces)
    for parameter, new, old in zip(
        net.parameters(), after.parameters(), before.parameters(), strict=True
    ):
        parameter += new - old
    causal.save(net.state_dict(), net.config, options.out, options.after)


if __name__ == "__main__":
    main()
