"""The causal model: WeDLM's 7B architecture at toy size, with the tensor names of its checkpoints.

The architecture is Qwen2: the layers of `model.py` with other names, biases on query, key and value,
and causal attention. The attention mask is an argument, because in training a sequence has two
streams.

Shapes: B sequences of a batch, N rows of a sequence, D width, H heads, V vocabulary.
"""

import json
import shutil
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

from model import RmsNorm, TOKENIZER_FILES, rotate

ARCHITECTURE = {
    "architectures": ["WeDLMForCausalLM"],
    "model_type": "wedlm",
    "attention_bias": True,
    "qk_norm": False,
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "rope_scaling": None,
    "sliding_window": None,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}
# Causal names and the corresponding names in a LLaDA checkpoint.
LLADA = {
    "model.embed_tokens": "wte",
    "model.norm": "ln_f",
    "lm_head": "ff_out",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ff_norm",
    "self_attn.q_proj": "q_proj",
    "self_attn.k_proj": "k_proj",
    "self_attn.v_proj": "v_proj",
    "self_attn.o_proj": "attn_out",
    "mlp.gate_proj": "ff_proj",
    "mlp.up_proj": "up_proj",
    "mlp.down_proj": "ff_out",
}


def configuration(llada):
    """The configuration with the geometry of a LLaDA configuration."""
    return ARCHITECTURE | {
        "hidden_size": llada["d_model"],
        "intermediate_size": llada["mlp_hidden_size"],
        "num_hidden_layers": llada["n_layers"],
        "num_attention_heads": llada["n_heads"],
        "num_key_value_heads": llada["n_kv_heads"],
        "head_dim": llada["d_model"] // llada["n_heads"],
        "max_position_embeddings": llada["max_sequence_length"],
        "rms_norm_eps": llada["rms_norm_eps"],
        "rope_theta": llada["rope_theta"],
        "vocab_size": llada["vocab_size"],
        "mask_token_id": llada["mask_token_id"],
        "eos_token_id": llada["eos_token_id"],
        "pad_token_id": llada["pad_token_id"],
    }


class Attention(nn.Module):
    """Attention of Qwen2 (biases) or, with `qk_norm`, of Qwen3 (a norm of every head's query and key)."""

    def __init__(self, config):
        super().__init__()
        width, bias = config["hidden_size"], config["attention_bias"]
        self.heads = config["num_attention_heads"]
        self.q_proj = nn.Linear(width, width, bias=bias)
        self.k_proj = nn.Linear(width, width, bias=bias)
        self.v_proj = nn.Linear(width, width, bias=bias)
        self.o_proj = nn.Linear(width, width, bias=False)
        norms = config["model_type"] == "sdar" or config["qk_norm"]
        for name in ("q_norm", "k_norm"):
            norm = RmsNorm(config["head_dim"], config["rms_norm_eps"]) if norms else nn.Identity()
            setattr(self, name, norm)

    def forward(self, x, rope, seen):
        batch, rows, width = x.shape
        split = (batch, rows, self.heads, width // self.heads)
        query, key, value = (
            projection(x).view(split).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = rotate(self.q_norm(query), *rope), rotate(self.k_norm(key), *rope)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, rows, width))


class Mlp(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, epsilon = config["hidden_size"], config["rms_norm_eps"]
        self.input_layernorm = RmsNorm(width, epsilon)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RmsNorm(width, epsilon)
        self.mlp = Mlp(width, config["intermediate_size"])

    def forward(self, x, rope, seen):
        x = x + self.self_attn(self.input_layernorm(x), rope, seen)
        return x + self.mlp(self.post_attention_layernorm(x))


class Causal(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, vocabulary = config["hidden_size"], config["vocab_size"]
        self.config = config
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(vocabulary, width)
        self.model.layers = nn.ModuleList(Layer(config) for _ in range(config["num_hidden_layers"]))
        self.model.norm = RmsNorm(width, config["rms_norm_eps"])
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        head = config["head_dim"]
        steps = torch.arange(0, head, 2, dtype=torch.float32) / head
        positions = torch.arange(config["max_position_embeddings"], dtype=torch.float32)
        angles = torch.outer(positions, config["rope_theta"] ** -steps).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens, positions, seen, scored):
        """Logits [S, V] of the S rows for which `scored` [B, N] is true.

        `tokens` and `positions` are [B, N]; `seen` [B, N, N] is true where a row sees another.
        """
        rope = (self.cos[positions][:, None], self.sin[positions][:, None])
        seen = seen[:, None]
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x, rope, seen)
        return self.lm_head(self.model.norm(x[scored]))


def from_llada(folder):
    """The causal model with the weights of a LLaDA checkpoint; its biases are 0."""
    folder = Path(folder)
    net = Causal(configuration(json.loads((folder / "config.json").read_text())))
    tensors = load_file(folder / "model.safetensors")
    for name, parameter in net.named_parameters():
        module, kind = name.rsplit(".", 1)
        if kind == "bias":
            torch.nn.init.zeros_(parameter.data)
            continue
        if module.startswith("model.layers."):
            layer, module = module.removeprefix("model.layers.").split(".", 1)
            source = f"blocks.{layer}.{LLADA[module]}"
        else:
            source = LLADA[module]
        parameter.data.copy_(tensors[f"model.transformer.{source}.weight"].float())
    return net


def load(folder):
    """The model of a Hugging Face folder, in f32."""
    folder = Path(folder)
    net = Causal(json.loads((folder / "config.json").read_text()))
    net.load_state_dict({n: t.float() for n, t in load_file(folder / "model.safetensors").items()})
    return net


def save(weights, config, folder, tokenizer_from):
    """Writes a Hugging Face folder: bf16 weights, configuration and tokenizer."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {n: t.detach().to("cpu", torch.bfloat16).contiguous() for n, t in weights.items()}
    # Write to a temporary file and move it, so that readers never see a partial file.
    partial = folder / "model.safetensors.partial"
    save_file(dict(sorted(tensors.items())), partial, metadata={"format": "pt"})
    partial.replace(folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    for name in (*TOKENIZER_FILES, "generation_config.json"):
        source = Path(tokenizer_from) / name
        if source.resolve() != (folder / name).resolve():
            shutil.copyfile(source, folder / name)
