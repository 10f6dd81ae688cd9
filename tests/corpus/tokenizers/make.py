"""Trains small tokenizers in the form of two published ones.

    python make.py

Writes gemma.json (characters, U+2581 for spaces, bytes for what is no token) and bailing.json
(bytes, the words of Ling's tokenizers, LLaDA2's and LLaDA-MoE's). Requires tokenizers 0.22.
"""

import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
WORDS = ("the model writes a text in one step and the next step reads it again  Don't we've 12 345 "
         "print(x) return self.value == None \n\n\t if while für Straße été 中文字 模型 привет мир").split(" ")


def texts():
    draw = random.Random(7)
    for _ in range(400):
        yield " ".join(draw.choice(WORDS) for _ in range(40))


def gemma():
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    control = ["<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>"]
    byte = [f"<0x{i:02X}>" for i in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=control + byte, show_progress=False)
    tokenizer.train_from_iterator(texts(), trainer)
    # The tokens of bytes are ordinary ones.
    import json
    of = json.loads(tokenizer.to_str())
    of["added_tokens"] = [token for token in of["added_tokens"] if token["content"] not in byte]
    return json.dumps(of, ensure_ascii=False, separators=(",", ":"))


def bailing():
    tokenizer = Tokenizer(models.BPE())
    pattern = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
               r"|\s*[\r\n]|\s+(?!\S)|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<|startoftext|>", "<|endoftext|>", "<|mask|>"])
    tokenizer.train_from_iterator(texts(), trainer)
    return tokenizer.to_str()


if __name__ == "__main__":
    for name, made in [("gemma", gemma()), ("bailing", bailing())]:
        (HERE / f"{name}.json").write_text(made + "\n")
