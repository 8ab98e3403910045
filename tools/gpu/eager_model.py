"""Llama 3 and GPT-2 in plain PyTorch, for comparison: the layers of worker/model, operator by operator what one writes with
torch.nn. Modules have Hugging Face's names without their prefix ("model.", "transformer."). Written from "The Llama 3 Herd of
Models" (2024), "Language Models are Unsupervised Multitask Learners" (2019) and our own layers."""
import json
import math
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def rope_frequencies(config):
    """Angle per position of each pair of channels; Llama 3.1 stretches the long wavelengths."""
    dim, theta, scaling = config["head_dim"], config["rope_theta"], config.get("rope_scaling")
    frequencies = torch.tensor([theta ** (-i / dim) for i in range(0, dim, 2)], dtype=torch.float64)
    if scaling:
        turns = scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
        keep = ((turns - scaling["low_freq_factor"]) / (scaling["high_freq_factor"] - scaling["low_freq_factor"])).clamp(0, 1)
        frequencies = frequencies * (keep + (1 - keep) / scaling["factor"])
    return frequencies


def rope_tables(config, length, device, dtype):
    angles = torch.outer(torch.arange(length, dtype=torch.float32), rope_frequencies(config).float())
    angles = torch.cat([angles, angles], dim=1)
    return angles.cos().to(device, dtype), angles.sin().to(device, dtype)


def rotate(x, cos, sin):
    """x [batch, heads, length, head_dim]"""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class RmsNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class LlamaAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, self.dim = config["hidden_size"], config["head_dim"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.q_proj = nn.Linear(hidden, self.heads * self.dim, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv_heads * self.dim, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, hidden, bias=False)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        q, k, v = (projection(x).view(batch, length, -1, self.dim).transpose(1, 2)
                   for projection in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        grouped = self.heads != self.kv_heads
        if grouped and x.is_cuda and x.dtype == torch.float32:  # CUDA's fused kernel for fp32 has no groups
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, dim=1) for t in (k, v))
            grouped = False
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))


class LlamaMlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.input_layernorm = RmsNorm(config["hidden_size"], config["rms_norm_eps"])
        self.self_attn = LlamaAttention(config)
        self.post_attention_layernorm = RmsNorm(config["hidden_size"], config["rms_norm_eps"])
        self.mlp = LlamaMlp(config)

    def forward(self, x, cos, sin):
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Llama(nn.Module):
    PREFIX, INNER = "model.", ("o_proj.weight", "down_proj.weight")

    def __init__(self, config):
        super().__init__()
        self.config, self.checkpointing, self.tables = config, False, None
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(LlamaBlock(config) for _ in range(config["num_hidden_layers"]))
        self.norm = RmsNorm(config["hidden_size"], config["rms_norm_eps"])
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)
        if config["tie_word_embeddings"]:
            self.lm_head.weight = self.embed_tokens.weight

    def forward(self, tokens):
        x = self.embed_tokens(tokens)
        if self.tables is None or self.tables[0].shape[0] < tokens.shape[1]:
            self.tables = rope_tables(self.config, tokens.shape[1], x.device, x.dtype)
        cos, sin = (table[:tokens.shape[1]] for table in self.tables)
        for layer in self.layers:
            x = checkpoint(layer, x, cos, sin, use_reentrant=False) if self.checkpointing else layer(x, cos, sin)
        return self.lm_head(self.norm(x))


class Gpt2Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, self.heads, self.drop = config["n_embd"], config["n_head"], config["attn_pdrop"]
        self.q_proj, self.k_proj, self.v_proj, self.c_proj = (nn.Linear(hidden, hidden) for _ in range(4))
        self.resid_dropout = nn.Dropout(config["resid_pdrop"])

    def forward(self, x):
        batch, length, hidden = x.shape
        q, k, v = (projection(x).view(batch, length, self.heads, -1).transpose(1, 2)
                   for projection in (self.q_proj, self.k_proj, self.v_proj))
        out = F.scaled_dot_product_attention(q, k, v, dropout_p=self.drop if self.training else 0.0, is_causal=True)
        return self.resid_dropout(self.c_proj(out.transpose(1, 2).reshape(batch, length, hidden)))


class Gpt2Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, inner = config["n_embd"], config.get("n_inner") or 4 * config["n_embd"]
        self.c_fc, self.c_proj = nn.Linear(hidden, inner), nn.Linear(inner, hidden)
        self.dropout = nn.Dropout(config["resid_pdrop"])

    def forward(self, x):
        return self.dropout(self.c_proj(F.gelu(self.c_fc(x), approximate="tanh")))


class Gpt2Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config["n_embd"], config["layer_norm_epsilon"])
        self.attn = Gpt2Attention(config)
        self.ln_2 = nn.LayerNorm(config["n_embd"], config["layer_norm_epsilon"])
        self.mlp = Gpt2Mlp(config)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    PREFIX, INNER = "transformer.", ("c_proj.weight",)

    def __init__(self, config):
        super().__init__()
        self.checkpointing = False
        self.wte = nn.Embedding(config["vocab_size"], config["n_embd"])
        self.wpe = nn.Embedding(config["n_positions"], config["n_embd"])
        self.drop = nn.Dropout(config["embd_pdrop"])
        self.h = nn.ModuleList(Gpt2Block(config) for _ in range(config["n_layer"]))
        self.ln_f = nn.LayerNorm(config["n_embd"], config["layer_norm_epsilon"])
        self.lm_head = nn.Linear(config["n_embd"], config["vocab_size"], bias=False)
        if config["tie_word_embeddings"]:
            self.lm_head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.drop(self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device)))
        for block in self.h:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointing else block(x)
        return self.lm_head(self.ln_f(x))


def build(config, device):
    """On the device, in fp32, initialized as ours: normal, what writes to the residual divided by sqrt(2 layers); zeros for biases."""
    kind, layers = (Llama, config["num_hidden_layers"]) if config["model_type"] == "llama" else (Gpt2, config["n_layer"])
    with torch.device(device):
        model = kind(config)
    std = config["initializer_range"]
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() > 1:
                p.normal_(0, std / math.sqrt(2 * layers) if name.endswith(kind.INNER) else std)
            elif name.endswith("bias"):
                p.zero_()
    return model


def loss_of(model, tokens, targets):
    """Mean over the tokens, in fp32."""
    logits = model(tokens)
    return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))


TYPES = {"F32": torch.float32, "BF16": torch.bfloat16}


def read_safetensors(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = torch.frombuffer(data[begin:end], dtype=TYPES[entry["dtype"]]).view(entry["shape"])
    return tensors


def load(folder, device):
    """A Hugging Face folder. Every parameter must be there, and nothing else."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    model, state = build(config, device), {}
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".safetensors"):
            continue
        for name, tensor in read_safetensors(os.path.join(folder, file)).items():
            name = name.removeprefix(model.PREFIX)
            if isinstance(model, Gpt2) and tensor.dim() == 2 and name.startswith("h."):
                tensor = tensor.t()  # Conv1D keeps [in, out]
            if "attn.c_attn." in name:
                for part, piece in zip("qkv", tensor.chunk(3)):
                    state[name.replace("c_attn", part + "_proj")] = piece
            else:
                state[name] = tensor
    if config["tie_word_embeddings"]:
        state.setdefault("lm_head.weight", state["wte.weight" if isinstance(model, Gpt2) else "embed_tokens.weight"])
    model.load_state_dict(state, strict=True)
    return model.to(device)
