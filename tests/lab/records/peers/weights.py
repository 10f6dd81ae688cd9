"""Random weights of the geometry llada-300m (crates/model/src/geometry.rs) as a GGUF file."""

import subprocess

import numpy as np
from gguf import GGUFWriter

WIDTH, HEADS, LAYERS, MLP = 1024, 16, 24, 2816


def write_model(path, architecture, vocabulary, describe):
    """A file in f32 that llama.cpp runs; `describe` adds further metadata to the writer."""
    draw = np.random.default_rng(5)
    file = GGUFWriter(path, architecture)
    file.add_context_length(4096)
    file.add_embedding_length(WIDTH)
    file.add_block_count(LAYERS)
    file.add_feed_forward_length(MLP)
    file.add_head_count(HEADS)
    file.add_head_count_kv(HEADS)
    file.add_rope_dimension_count(WIDTH // HEADS)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_vocab_size(vocabulary)
    describe(file)

    def matrix(name, rows, columns):
        weights = draw.standard_normal((rows, columns), dtype=np.float32) / np.sqrt(columns)
        file.add_tensor(name, weights.astype(np.float32))

    matrix("token_embd.weight", vocabulary, WIDTH)
    matrix("output.weight", vocabulary, WIDTH)
    file.add_tensor("output_norm.weight", np.ones(WIDTH, dtype=np.float32))
    for layer in range(LAYERS):
        for norm in ("attn_norm", "ffn_norm"):
            file.add_tensor(f"blk.{layer}.{norm}.weight", np.ones(WIDTH, dtype=np.float32))
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"blk.{layer}.{part}.weight", WIDTH, WIDTH)
        for part in ("ffn_gate", "ffn_up"):
            matrix(f"blk.{layer}.{part}.weight", MLP, WIDTH)
        matrix(f"blk.{layer}.ffn_down.weight", WIDTH, MLP)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def quantized(exact, path, form, options):
    """Writes the file `exact` in the number format `form` to `path`, unless that exists."""
    if not path.exists():
        command = [options.llama_quantize, exact, path, form, str(options.threads)]
        subprocess.run(command, check=True, capture_output=True)
