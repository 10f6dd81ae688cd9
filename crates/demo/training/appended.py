"""Tokens for conversations with functions, appended to a tokenizer whose ids stay as they are.

The texts of the other families keep their tokens, so that weights which know those texts keep what
they can do.
"""

import argparse
import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

import model as llada
from tokenizer import write

# The fixed parts of a call. The blank before a number stays outside, so that the number is the
# same token as in the question.
MARKS = (
    "<tool_call>",
    "</tool_call>",
    '{"name": "',
    '", "arguments": {',
    '", "arguments": {"',
    "}}\n",
    '("',
    '")',
    '", "',
    '": string)',
)
# Longer names are a few of these.
NAMES = """
    add plus sum subtract minus multiply times divide double triple halve get_weather weather
    look_up search set_timer get_time transfer_to_ transfer_to_other send_ read_ final_
"""
PARAMETERS = "first second left right value number city name query place text minutes"
QUESTIONS = "What Subtract Multiply Divide Double Triple Halve How Look Who Set tool tools"
PLACES = "Paris London Rome Berlin Tokyo Oslo"
BLANK_FIRST = "times minus weather timer minutes up time much " + PLACES



def appended(tokenizer):
    """The tokenizer with one token for each word above, and the pieces of each new token."""
    fields = json.loads(tokenizer.to_str())
    vocabulary, merges = fields["model"]["vocab"], fields["model"]["merges"]
    pieces = {}
    words = [*NAMES.split(), *PARAMETERS.split(), *QUESTIONS.split(), *PLACES.split()]
    for word in words + [" " + word for word in BLANK_FIRST.split()]:
        parts = Tokenizer.from_str(json.dumps(fields)).encode(word).tokens
        while len(parts) > 1:
            joined = parts[0] + parts[1]
            if joined not in vocabulary:
                vocabulary[joined] = len(vocabulary)
                pieces[vocabulary[joined]] = [vocabulary[parts[0]], vocabulary[parts[1]]]
            merges.append(parts[:2])
            parts = [joined, *parts[2:]]
    extended = Tokenizer.from_str(json.dumps(fields))
    marks = {mark: extended.encode(mark).ids for mark in MARKS}
    extended.add_tokens([AddedToken(mark, normalized=False) for mark in MARKS])
    pieces |= {extended.token_to_id(mark): ids for mark, ids in marks.items()}
    return extended, pieces


def initialised(folder, pieces):
    """The tensors of a model whose new rows are the means of their pieces' rows."""
    tensors = llada.load(folder).state_dict()
    for name in ("wte.weight", "ff_out.weight"):
        for row, parts in sorted(pieces.items()):
            tensors[name][row] = tensors[name][parts].mean(0)
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", type=Path, required=True, help="folder of a model without them")
    parser.add_argument("--out", type=Path, required=True, help="output folder")
    options = parser.parse_args()
    tokenizer, pieces = appended(Tokenizer.from_file(str(options.base / "tokenizer.json")))
    write(tokenizer, options.out)
    llada.save(initialised(options.base, pieces), options.out, options.base, options.out)
    print(f"{tokenizer.get_vocab_size()} tokens in {options.out}")


if __name__ == "__main__":
    main()
