#!/usr/bin/env python3
"""Records what Hugging Face transformers says about tiny random models: their folders and logits, and that transformers reads
what LegoAI exports. Versions are pinned by requirements.txt beside this file; run again only when a model is added.

    python3 -m venv VENV && VENV/bin/pip install -r requirements.txt
    VENV/bin/python record_hf_reference.py models             # writes NAME/config.json, weights, NAME/reference.safetensors
    bazel build //worker/model:reexport
    VENV/bin/python record_hf_reference.py exports REEXPORT   # the built program; writes NAME/export.sha256

Names after that are the models to record; without, all.
"""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import safetensors.torch
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
LLAMA = dict(vocab_size=61, hidden_size=32, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=8, max_position_embeddings=128, rms_norm_eps=1e-5, rope_theta=10000.0,
             tie_word_embeddings=False, bos_token_id=None, eos_token_id=None)
SCALING = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
               original_max_position_embeddings=32)
GPT2 = dict(vocab_size=61, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=None)
SMALL = {**LLAMA, "hidden_size": 16, "intermediate_size": 20}
QWEN = dict(max_window_layers=2, use_sliding_window=False)
MODELS = {
    # name: (config, sequence length, largest file)
    "llama-gqa": (transformers.LlamaConfig(**LLAMA), 13, "5GB"),
    "llama-rope-scaled": (transformers.LlamaConfig(**{**LLAMA, "rope_scaling": SCALING, "rope_theta": 500000.0}), 64, "30KB"),
    "llama-tied": (transformers.LlamaConfig(**{**LLAMA, "tie_word_embeddings": True, "num_key_value_heads": 4}), 13, "5GB"),
    # Heads wider than hidden_size / num_attention_heads that share one key and value; rms_norm_eps large enough to show.
    "llama-wide-heads": (transformers.LlamaConfig(**{
        **LLAMA, "head_dim": 12, "num_key_value_heads": 1, "tie_word_embeddings": True, "rope_theta": 500000.0,
        "rope_scaling": {**SCALING, "factor": 32.0}, "rms_norm_eps": 0.1}), 40, "5GB"),
    # Narrower heads, whose number does not divide hidden_size.
    "llama-narrow-heads": (transformers.LlamaConfig(**{**LLAMA, "hidden_size": 30, "head_dim": 6, "num_key_value_heads": 4,
                                                       "rope_theta": 100.0}), 13, "5GB"),
    "mistral": (transformers.MistralConfig(**{**SMALL, "sliding_window": 5}), 13, "5GB"),
    "mistral-without-window": (transformers.MistralConfig(**{**SMALL, "sliding_window": None}), 13, "5GB"),
    "qwen2": (transformers.Qwen2Config(**{**SMALL, **QWEN, "tie_word_embeddings": True, "rope_theta": 1000000.0}), 13, "5GB"),
    "qwen3": (transformers.Qwen3Config(**{**SMALL, **QWEN, "head_dim": 12, "rope_theta": 1000000.0, "rms_norm_eps": 0.1}), 13,
              "5GB"),
    "qwen3-window": (transformers.Qwen3Config(**{**SMALL, "use_sliding_window": True, "sliding_window": 4,
                                                 "max_window_layers": 0}), 13, "5GB"),
    "gemma": (transformers.GemmaConfig(**{**SMALL, "head_dim": 12, "num_key_value_heads": 1, "tie_word_embeddings": True}), 13,
              "5GB"),
    # Caps that scores and logits come near.
    "gemma2": (transformers.Gemma2Config(**{
        **SMALL, "head_dim": 12, "tie_word_embeddings": True, "num_hidden_layers": 3, "sliding_window": 5,
        "query_pre_attn_scalar": 20, "attn_logit_softcapping": 0.5, "final_logit_softcapping": 2.0}), 13, "5GB"),
    "gpt2": (transformers.GPT2Config(**GPT2), 13, "5GB"),
    "gpt2-untied": (transformers.GPT2Config(**{
        **GPT2, "n_positions": 13, "n_inner": 40, "tie_word_embeddings": False, "activation_function": "gelu_pytorch_tanh",
        "layer_norm_epsilon": 0.1}), 13, "5GB"),
}


def randomize(model):
    """Every parameter gets random values, those that start as ones or zeros too."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if "norm" in name or ".ln_" in name:
            parameter.data = 0.2 * noise + (0.0 if name.endswith("bias") else 1.0)
        else:
            parameter.data = 0.2 * noise
    model.tie_weights()


def logits_of(folder, tokens):
    config = transformers.AutoConfig.from_pretrained(folder)
    attention = "eager" if hasattr(config, "attn_logit_softcapping") else None  # the only one that caps
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention).eval()
    with torch.no_grad():
        return model(tokens).logits


def record_model(name):
    config, seq, largest_file = MODELS[name]
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model = transformers.AutoModelForCausalLM.from_config(config)
    randomize(model)
    model.save_pretrained(folder, max_shard_size=largest_file)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokens = torch.randint(config.vocab_size, (2, seq), generator=torch.Generator().manual_seed(2))
    safetensors.torch.save_file({"tokens": tokens, "logits": logits_of(folder, tokens)}, folder / "reference.safetensors")


def digest_of(folder):
    """SHA-256 over name and contents of every file, in the order of names."""
    sha = hashlib.sha256()
    for path in sorted(pathlib.Path(folder).iterdir()):
        sha.update(path.name.encode() + b"\0" + path.read_bytes())
    return sha.hexdigest()


def checked_export(name, command, most):
    """The digest of an export that gives transformers the recorded logits up to `most`."""
    with tempfile.TemporaryDirectory() as export:
        subprocess.run([command[0], HERE / name, export, *command[1:]], check=True)
        reference = safetensors.torch.load_file(HERE / name / "reference.safetensors")
        difference = (logits_of(export, reference["tokens"]) - reference["logits"]).abs().max()
        if not difference <= most:
            raise SystemExit(f"{name}: the export's logits differ by {difference}")
        return digest_of(export)


def record_export(name, reexport):
    # A composed config.json may name another of two equal activations.
    digests = [checked_export(name, [reexport], 0), checked_export(name, [reexport, "composed"], 1e-5)]
    (HERE / name / "export.sha256").write_text("".join(digest + "\n" for digest in digests))


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    what, *rest = sys.argv[1:]
    reexport, names = (None, rest) if what == "models" else (rest[0], rest[1:])
    for name in names or MODELS:
        if what == "models":
            record_model(name)
        else:
            record_export(name, reexport)
        print(name, "recorded")


if __name__ == "__main__":
    main()
