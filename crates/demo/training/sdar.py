"""The block-causal model: SDAR's architecture at toy size, with the tensor names of its checkpoints.

The architecture is Qwen3: that of `causal.py` without biases and with a norm of every head's query and
key, whose weights all heads of a layer share. Attention is block-causal: a position sees its own block
and all before it.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from causal import Causal

BLOCK = 8
# What a configuration of SDAR has beside the geometry.
ARCHITECTURE = {
    "architectures": ["SDARForCausalLM"],
    "model_type": "sdar",
    "attention_bias": False,
    "block_size": BLOCK,
    "initializer_range": 0.02,
}
# Keys of WeDLM's configuration that SDAR's has not.
WITHOUT = ("qk_norm",)


def from_causal(folder, sample):
    """The block-causal model with the weights of a causal checkpoint, without their biases.

    `sample` (tokens, positions, seen), as for `Causal.forward`, gives the weights of the norms: the mean
    size of a layer's queries and keys, so that the logits of attention keep their size on average.
    """
    folder = Path(folder)
    config = json.loads((folder / "config.json").read_text()) | ARCHITECTURE
    net = Causal({key: value for key, value in config.items() if key not in WITHOUT})
    tensors = {name: t.float() for name, t in load_file(folder / "model.safetensors").items()}
    shared = {name: t for name, t in tensors.items() if not name.endswith(".bias")}
    missing, unknown = net.load_state_dict(shared, strict=False)
    assert not unknown and all("_norm.weight" in name for name in missing)
    measure_norms(net, sample)
    return net


@torch.no_grad()
def measure_norms(net, sample):
    """Sets the norms of queries and keys layer by layer, because each changes what the next one sees."""
    tokens, positions, seen = sample
    for layer in net.model.layers:
        attention = layer.self_attn
        sizes = []
        hooks = [
            norm.register_forward_pre_hook(lambda _, x: sizes.append(x[0].square().mean(-1).sqrt().mean()))
            for norm in (attention.q_norm, attention.k_norm)
        ]
        net(tokens, positions, seen, torch.ones_like(tokens, dtype=torch.bool))
        for hook in hooks:
            hook.remove()
        for norm, size in zip((attention.q_norm, attention.k_norm), sizes, strict=True):
            norm.weight.fill_(size)
