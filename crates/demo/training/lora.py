"""A Llama model of a GGUF file with low-rank additions (LoRA, arXiv 2106.09685) to the rows of masks alone.

The weights of the file are dequantised and stay as they are. Trained are the additions and one embedding,
that of the mask: all other rows, and so the text of the model, stay exactly what they were. Names and
order of rows are those of Hugging Face's checkpoints.

Shapes: N rows of text, M rows of masks, D width, H heads, K heads of keys and values.
"""

import gguf
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import nn

from model import rotate

MATRICES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def rms(x, weight, epsilon):
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon) * weight).type_as(x)


class Lora(nn.Module):
    """A fixed matrix and, for masks, the product of two trained ones, the second of which begins as 0."""

    def __init__(self, weight, rank):
        super().__init__()
        outputs, inputs = weight.shape
        self.register_buffer("weight", weight, persistent=False)
        self.down = nn.Parameter(torch.randn(rank, inputs) * inputs**-0.5)
        self.up = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, x, masks):
        y = F.linear(x, self.weight)
        if masks:
            y = y + F.linear(F.linear(x, self.down.type_as(x)), self.up.type_as(x))
        return y


class Layer(nn.Module):
    def __init__(self, config, tensors, prefix, rank):
        super().__init__()
        self.config = config
        for name in ("attn_norm", "ffn_norm"):
            self.register_buffer(name, tensors[f"{prefix}{name}.weight"], persistent=False)
        for name in MATRICES:
            weight = tensors[f"{prefix}{name}.weight"].to(config["dtype"])
            setattr(self, name, Lora(weight, rank))

    def forward(self, x, rope, seen, earlier=None):
        """The rows after the layer, and their keys and values [2, K, rows, D / H]. Without `earlier` x
        [N, D] is text; otherwise x [M, D] are masks after keys and values of text."""
        rows, width = x.shape
        masks = earlier is not None
        epsilon, heads, pairs = (self.config[k] for k in ("rms_norm_eps", "num_attention_heads", "num_key_value_heads"))
        y = rms(x, self.attn_norm, epsilon)
        split = (rows, -1, width // heads)
        query, key, value = (m(y, masks).view(split).transpose(0, 1) for m in (self.attn_q, self.attn_k, self.attn_v))
        query, key = rotate(query, *rope), rotate(key, *rope)
        own = torch.stack([key, value])
        key, value = torch.cat([earlier, own], 2) if masks else own
        key, value = (each.repeat_interleave(heads // pairs, 0) for each in (key, value))
        # Plain products are faster than the fused attention on a processor.
        scores = query @ key.transpose(1, 2) * (width // heads) ** -0.5
        mixed = scores.masked_fill(~seen, -1e9).softmax(-1) @ value
        x = x + self.attn_output(mixed.transpose(0, 1).reshape(rows, width), masks)
        y = rms(x, self.ffn_norm, epsilon)
        return x + self.ffn_down(F.silu(self.ffn_gate(y, masks)) * self.ffn_up(y, masks), masks), own


class Llama(nn.Module):
    def __init__(self, config, tensors, rank):
        super().__init__()
        self.config = config
        self.register_buffer("embedding", tensors["token_embd.weight"].to(config["dtype"]), persistent=False)
        self.register_buffer("norm", tensors["output_norm.weight"], persistent=False)
        # The mean of all embeddings says nothing about any token.
        self.mask = nn.Parameter(tensors["token_embd.weight"].mean(0))
        layers = range(config["num_hidden_layers"])
        self.layers = nn.ModuleList(Layer(config, tensors, f"blk.{number}.", rank) for number in layers)
        head = config["head_dim"]
        steps = torch.arange(0, head, 2, dtype=torch.float32) / head
        angles = torch.outer(torch.arange(2048.0), config["rope_theta"] ** -steps).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def rope(self, positions):
        return self.cos[positions], self.sin[positions]

    def logits(self, x):
        return F.linear(rms(x, self.norm, self.config["rms_norm_eps"]), self.embedding).float()

    @torch.no_grad()
    def text(self, tokens):
        """The last hidden states [N, D] of a text, and keys and values of each layer."""
        order = torch.arange(len(tokens))
        seen = order[:, None] >= order[None, :]
        x, rope, caches = self.embedding[tokens], self.rope(order), []
        for layer in self.layers:
            x, own = layer(x, rope, seen)
            caches.append(own)
        return x, caches

    def masks(self, caches, positions, seen):
        """Logits [M, V] of masks at `positions` [M] that see text and masks by `seen` [M, N + M]."""
        rope = self.rope(positions)
        x = self.mask.to(self.config["dtype"]).expand(len(positions), -1)
        for layer, earlier in zip(self.layers, caches, strict=True):
            x, _ = layer(x, rope, seen, earlier)
        return self.logits(x)

    @torch.no_grad()
    def adapter(self):
        """The tensors of PEFT's file."""
        tensors = {"base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta": self.mask[None]}
        for number, layer in enumerate(self.layers):
            for name, to in MATRICES.items():
                matrix = getattr(layer, name)
                module = f"base_model.model.model.layers.{number}.{to}"
                tensors |= {f"{module}.lora_A.weight": matrix.down, f"{module}.lora_B.weight": matrix.up}
        return {name: tensor.to(torch.float16).contiguous() for name, tensor in tensors.items()}


def halves(weight, heads):
    """Rows of a GGUF file's queries or keys, whose rotated pairs are neighbours, in Hugging Face's order."""
    rows, width = weight.shape
    pairs = weight.view(heads, rows // heads // 2, 2, width)
    return pairs.transpose(1, 2).reshape(rows, width)


def load(path, rank, dtype=torch.bfloat16):
    """The model of a GGUF file of Llama's architecture, and its tokenizer."""
    reader = gguf.GGUFReader(path)

    def field(name):
        return reader.fields[name].contents()

    width, heads = field("llama.embedding_length"), field("llama.attention.head_count")
    config = {
        "dtype": dtype,
        "num_hidden_layers": field("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": field("llama.attention.head_count_kv"),
        "head_dim": width // heads,
        "rms_norm_eps": field("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": field("llama.rope.freq_base"),
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
