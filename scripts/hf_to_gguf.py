#!/usr/bin/env python3
"""Writes a Hugging Face folder (llama, mistral, qwen2 or qwen3) as a GGUF file.

An independent check of the GGUF loader: the file is made by the PyPI package `gguf`, with the conventions of
llama.cpp's converter, so that a folder and its GGUF file must give the same scores:

- llama and mistral: the rows of q_proj and k_proj are permuted so that the two elements of a rotary pair are
  neighbours (qwen files are left as they are);
- llama3 rope scaling becomes the tensor `rope_freqs.weight` of divisors.

Usage: hf_to_gguf.py FOLDER OUT.gguf [--type F32|F16|BF16|Q4_0|Q4_1|Q5_0|Q5_1|Q8_0]
Needs numpy and gguf. No tokenizer is written.
"""

import argparse
import json
import math
import struct
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

ARCHITECTURES = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
TOP_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def read_safetensors(path):
    """Name and float32 array of each tensor in the file."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    data = memoryview(raw)[8 + length :]
    for name, info in header.items():
        if name == "__metadata__":
            continue
        part = data[slice(*info["data_offsets"])]
        if info["dtype"] == "BF16":
            array = (np.frombuffer(part, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            array = np.frombuffer(part, {"F32": np.float32, "F16": np.float16}[info["dtype"]])
        yield name, array.astype(np.float32).reshape(info["shape"])


def neighbours(array, heads):
    """Row j*d/2 + i of each head becomes row 2i + j."""
    rows = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
    return np.ascontiguousarray(rows.swapaxes(1, 2).reshape(array.shape))


def gguf_name(name):
    stem, _, ending = name.rpartition(".")
    if stem in TOP_NAMES:
        return f"{TOP_NAMES[stem]}.{ending}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[part]}.{ending}"


def rope_of(config):
    """Rotary base and scaling, in both spellings."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    return theta, rope.get("rope_type", rope.get("type", "default")), rope


def llama3_factors(head_dim, theta, rope):
    """Quotients of plain and scaled inverse frequencies."""
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    context = rope["original_max_position_embeddings"]
    factors = []
    for pair in range(head_dim // 2):
        wavelength = 2 * math.pi * theta ** (2 * pair / head_dim)
        if wavelength < context / high:
            factors.append(1.0)
        elif wavelength > context / low:
            factors.append(factor)
        else:
            smooth = (context / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(factors, np.float32)


def write_metadata(writer, config, head_dim):
    heads = config["num_attention_heads"]
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads", heads))
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    theta, kind, rope = rope_of(config)
    writer.add_rope_freq_base(theta)
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(rope["factor"])
    elif kind == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(head_dim, theta, rope))
    elif kind != "default":
        raise SystemExit(f"rope type {kind} has no form in GGUF here")
    if config["model_type"] == "mistral" and config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--type", default="F32", choices=[
        "F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
    arguments = parser.parse_args()
    kind = Kind[arguments.type]
    config = json.loads((arguments.folder / "config.json").read_text())
    architecture = ARCHITECTURES[config["model_type"]]
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    writer = gguf.GGUFWriter(arguments.out, architecture)
    write_metadata(writer, config, head_dim)
    for shard in sorted(arguments.folder.glob("*.safetensors")):
        for name, array in read_safetensors(shard):
            if architecture == "llama" and "self_attn.q_proj" in name:
                array = neighbours(array, heads)
            if architecture == "llama" and "self_attn.k_proj" in name:
                array = neighbours(array, config.get("num_key_value_heads", heads))
            if array.ndim == 1 or kind == Kind.F32:
                writer.add_tensor(gguf_name(name), array)
            else:
                writer.add_tensor(gguf_name(name), gguf.quants.quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
