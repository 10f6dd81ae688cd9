"""A Llama model of a GGUF file whose matrices get a low-rank addition (LoRA, arXiv 2106.09685).

The weights of the file are dequantised and stay as they are. Trained are the additions and one
embedding, that of the mask. Names and order of rows are those of Hugging Face's checkpoints.

Shapes: B sequences of a batch, N rows of a sequence, D width, H heads, K heads of keys and values.
"""

import gguf
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import nn

from model import rotate
from tokenizer import MASK

MATRICES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def rms(x, weight, epsilon):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight


class Lora(nn.Module):
    """A fixed matrix plus the product of two trained ones, the second of which begins as 0."""

    def __init__(self, weight, rank):
        super().__init__()
        outputs, inputs = weight.shape
        self.register_buffer("weight", weight, persistent=False)
        self.down = nn.Parameter(torch.randn(rank, inputs) * inputs**-0.5)
        self.up = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x):
        return F.linear(x, self.weight) + F.linear(F.linear(x, self.down), self.up)

    def merged(self):
        return self.weight + self.up @ self.down


class Layer(nn.Module):
    def __init__(self, config, tensors, prefix, rank):
        super().__init__()
        self.config = config
        for name in NORMS:
            self.register_buffer(name, tensors[f"{prefix}{name}.weight"], persistent=False)
        for name in MATRICES:
            setattr(self, name, Lora(tensors[f"{prefix}{name}.weight"], rank))

    def forward(self, x, rope, seen, cache=None):
        """`cache` is a list to which keys and values of all earlier rows are added."""
        batch, rows, width = x.shape
        epsilon, heads, pairs = (self.config[k] for k in ("rms_norm_eps", "num_attention_heads", "num_key_value_heads"))
        y = rms(x, self.attn_norm, epsilon)
        split = (batch, rows, -1, width // heads)
        query, key, value = (m(y).view(split).transpose(1, 2) for m in (self.attn_q, self.attn_k, self.attn_v))
        query, key = rotate(query, *rope), rotate(key, *rope)
        if cache is not None:
            cache.append((key, value))
            key, value = (torch.cat(parts, 2) for parts in zip(*cache, strict=True))
            cache[:] = [(key, value)]
        key, value = (each.repeat_interleave(heads // pairs, 1) for each in (key, value))
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        x = x + self.attn_output(mixed.transpose(1, 2).reshape(batch, rows, width))
        y = rms(x, self.ffn_norm, epsilon)
        return x + self.ffn_down(F.silu(self.ffn_gate(y)) * self.ffn_up(y))


class Llama(nn.Module):
    def __init__(self, config, tensors, rank):
        super().__init__()
        self.config = config
        self.register_buffer("embedding", tensors["token_embd.weight"], persistent=False)
        self.register_buffer("norm", tensors["output_norm.weight"], persistent=False)
        # The mean of all embeddings says nothing about any token.
        self.mask = nn.Parameter(self.embedding.mean(0))
        layers = range(config["num_hidden_layers"])
        self.layers = nn.ModuleList(Layer(config, tensors, f"blk.{at}.", rank) for at in layers)
        head = config["head_dim"]
        steps = torch.arange(0, head, 2, dtype=torch.float32) / head
        angles = torch.outer(torch.arange(1024.0), config["rope_theta"] ** -steps).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens, positions, seen, scored, caches=None):
        """As `causal.Causal.forward`. `caches` has a list for each layer."""
        rope = (self.cos[positions][:, None], self.sin[positions][:, None])
        x = torch.where((tokens == MASK)[..., None], self.mask, self.embedding[tokens])
        for number, layer in enumerate(self.layers):
            x = layer(x, rope, seen[:, None], caches and caches[number])
        x = rms(x[scored], self.norm, self.config["rms_norm_eps"])
        return F.linear(x, self.embedding)

    @torch.no_grad()
    def checkpoint(self):
        """The tensors of a Hugging Face folder, with the additions in the matrices. The input row of the
        mask differs from its output row, so that the two tables are stored apart."""
        embedding = self.embedding.clone()
        embedding[MASK] = self.mask
        tensors = {
            "model.embed_tokens.weight": embedding,
            "model.norm.weight": self.norm,
            "lm_head.weight": self.embedding,
        }
        for number, layer in enumerate(self.layers):
            prefix = f"model.layers.{number}."
            for name, to in MATRICES.items():
                tensors[f"{prefix}{to}.weight"] = getattr(layer, name).merged()
            for name, to in NORMS.items():
                tensors[f"{prefix}{to}.weight"] = getattr(layer, name)
        return tensors


def halves(weight, heads):
    """Rows of a GGUF file's queries or keys, whose rotated pairs are neighbours, in Hugging Face's order."""
    rows, width = weight.shape
    pairs = weight.view(heads, rows // heads // 2, 2, width)
    return pairs.transpose(1, 2).reshape(rows, width)


def load(path, rank):
    """The model of a GGUF file of Llama's architecture, and its tokenizer."""
    reader = gguf.GGUFReader(path)

    def field(name):
        return reader.fields[name].contents()

    width, heads = field("llama.embedding_length"), field("llama.attention.head_count")
    config = {
        "hidden_size": width,
        "intermediate_size": field("llama.feed_forward_length"),
        "num_hidden_layers": field("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": field("llama.attention.head_count_kv"),
        "head_dim": width // heads,
        "max_position_embeddings": field("llama.context_length"),
        "rms_norm_eps": field("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": field("llama.rope.freq_base"),
        "vocab_size": field("llama.vocab_size"),
    }
    tensors = {}
    for tensor in reader.tensors:
        weight = torch.tensor(gguf.dequantize(tensor.data, tensor.tensor_type), dtype=torch.float32)
        for part, count in (("attn_q", heads), ("attn_k", config["num_key_value_heads"])):
            if part in tensor.name:
                weight = halves(weight, count)
        tensors[tensor.name] = weight
    return Llama(config, tensors, rank), tokenizer(field)


def tokenizer(field):
    """The byte-level BPE of the file; digits are single tokens."""
    tokens = field("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
    built = Tokenizer(models.BPE({token: id for id, token in enumerate(tokens)}, merges))
    digits = pre_tokenizers.Digits(individual_digits=True)
    bytes_ = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_])
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([token for token in tokens[:17]])
    return built
