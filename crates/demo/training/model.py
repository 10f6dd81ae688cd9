"""The model: LLaDA's architecture at toy size, with the tensor names of its checkpoints.

Shapes: B sequences of a batch, T positions, D width, H heads, V vocabulary.
"""

import json
import shutil
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
PREFIX = "model.transformer."


class RmsNorm(nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x):
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.epsilon)
        return (scaled * self.weight.float()).type_as(x)


def rotate(x, cos, sin):
    """RoPE on halves; x [B, H, T, D / H], cos and sin [T, D / H]."""
    left, right = x.float().chunk(2, dim=-1)
    return (x.float() * cos + torch.cat([-right, left], dim=-1) * sin).type_as(x)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, hidden = config["d_model"], config["mlp_hidden_size"]
        self.heads = config["n_heads"]
        self.attn_norm = RmsNorm(width, config["rms_norm_eps"])
        self.ff_norm = RmsNorm(width, config["rms_norm_eps"])
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.attn_out = nn.Linear(width, width, bias=False)
        self.ff_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.ff_out = nn.Linear(hidden, width, bias=False)

    def forward(self, x, rope, mask):
        batch, length, width = x.shape
        y = self.attn_norm(x)
        split = (batch, length, self.heads, width // self.heads)
        query, key, value = (
            projection(y).view(split).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = rotate(query, *rope), rotate(key, *rope)
        # On processors several times faster than `scaled_dot_product_attention`.
        scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        with torch.autocast("cpu", enabled=False):
            mixed = scores.softmax(-1) @ value
        x = x + self.attn_out(mixed.transpose(1, 2).reshape(batch, length, width))
        y = self.ff_norm(x)
        return x + self.ff_out(F.silu(self.ff_proj(y)) * self.up_proj(y))


class Llada(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, rows = config["d_model"], config["embedding_size"]
        self.config = config
        self.wte = nn.Embedding(rows, width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config["n_layers"]))
        self.ln_f = RmsNorm(width, config["rms_norm_eps"])
        self.ff_out = nn.Linear(width, rows, bias=False)
        head = width // config["n_heads"]
        steps = torch.arange(0, head, 2, dtype=torch.float32) / head
        angles = torch.outer(
            torch.arange(config["max_sequence_length"], dtype=torch.float32),
            config["rope_theta"] ** -steps,
        ).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self.reset()

    def reset(self):
        """Normal weights; matrices that write to the residual stream get a smaller deviation."""
        deviation = self.config["init_std"]
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                into_residual = "blocks" in name and ("attn_out" in name or "ff_out" in name)
                scale = (2 * self.config["n_layers"]) ** -0.5 if into_residual else 1.0
                nn.init.normal_(parameter, std=deviation * scale)

    def forward(self, tokens, seen=None, scored=None):
        """Logits of `tokens` [B, T]: [B, T, V], or [N, V] for the N positions where `scored` is true.

        `seen` [B, T] is false for padding; attention is full among the other positions.
        """
        length = tokens.shape[1]
        rope = (self.cos[:length], self.sin[:length])
        mask = None if seen is None else seen[:, None, None, :]
        x = self.wte(tokens)
        for block in self.blocks:
            x = block(x, rope, mask)
        x = self.ln_f(x)
        return self.ff_out(x if scored is None else x[scored])


def load(folder):
    """The model of a Hugging Face folder, in f32."""
    folder = Path(folder)
    model = Llada(json.loads((folder / "config.json").read_text()))
    tensors = load_file(folder / "model.safetensors")
    model.load_state_dict({name.removeprefix(PREFIX): t.float() for name, t in tensors.items()})
    return model


def save(weights, folder, config_from, tokenizer_from):
    """Writes a Hugging Face folder: bf16 weights, configuration and tokenizer."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {PREFIX + n: t.detach().to("cpu", torch.bfloat16).contiguous() for n, t in weights.items()}
    # Write to a temporary file and move it, so that readers never see a partial file.
    partial = folder / "model.safetensors.partial"
    save_file(dict(sorted(tensors.items())), partial, metadata={"format": "pt"})
    partial.replace(folder / "model.safetensors")
    sources = [Path(config_from) / name for name in ("config.json", "generation_config.json")]
    sources += [Path(tokenizer_from) / name for name in TOKENIZER_FILES]
    for source in sources:
        if source.resolve() != (folder / source.name).resolve():
            shutil.copyfile(source, folder / source.name)
