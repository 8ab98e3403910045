#!/usr/bin/env python3
"""Records what PyTorch says its CUDA kernels give (sizes, strides, types), for the operators whose results are not those of the
CPU's kernels: FlashAttention for bf16 and memory-efficient attention for fp32, as worker/model/attention_kernels.cc calls them, and
layer norm. By PyTorch's own fake tensors of a CUDA device, so no GPU is needed. Run again only when a case is added or PyTorch is
another; the version is pinned by requirements.txt beside this file.

    python3 -m venv VENV && VENV/bin/pip install -r requirements.txt
    VENV/bin/python record_cuda_results.py    # writes cuda_results.json
"""
import json
import pathlib

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

ATEN = torch.ops.aten
TYPES = {"FLOAT32": torch.float32, "BFLOAT16": torch.bfloat16}
NAMES = {torch.float32: "FLOAT32", torch.bfloat16: "BFLOAT16"}
SCALE = 0.3
# batch, heads, key and value heads, tokens, head_dim
ATTENTIONS = [(1, 2, 2, 32, 16), (2, 4, 4, 33, 32), (2, 4, 2, 40, 16), (1, 8, 2, 100, 64), (3, 4, 4, 128, 8), (2, 2, 1, 5, 32)]
# batch, tokens, dim
NORMS = [(2, 7, 48), (1, 64, 96), (4, 33, 8)]


def describe(tensor):
    return {"dtype": NAMES[tensor.dtype], "sizes": list(tensor.shape), "strides": list(tensor.stride()),
            "bytes": tensor.untyped_storage().nbytes()}


def repeated(x, heads):
    batch, kv_heads, seq, dim = x.shape
    return x.unsqueeze(2).expand(batch, kv_heads, heads // kv_heads, seq, dim).reshape(batch, heads, seq, dim)


def summed(grad, kv_heads):
    batch, heads, seq, dim = grad.shape
    if heads == kv_heads:
        return grad
    return grad.transpose(1, 2).reshape(batch, seq, kv_heads, heads // kv_heads, dim).sum(3).transpose(1, 2)


def attention(dtype, batch, heads, kv_heads, seq, dim):
    make = lambda h: torch.empty(batch, seq, h, dim, dtype=dtype, device="cuda").transpose(1, 2)
    q, k, v = make(heads), make(kv_heads), make(kv_heads)
    none = torch.empty(0, dtype=torch.long, device="cuda")
    if dtype == torch.bfloat16:
        out, lse, *_ = ATEN._scaled_dot_product_flash_attention(q, k, v, 0.0, True, False, scale=SCALE)
        grads = ATEN._scaled_dot_product_flash_attention_backward(out, q, k, v, out, lse, None, None, seq, seq, 0.0, True, none,
                                                                  none, scale=SCALE)
        return [out, lse], list(grads)
    k_all, v_all = repeated(k, heads), repeated(v, heads)
    out, lse, *_ = ATEN._scaled_dot_product_efficient_attention(q, k_all, v_all, None, True, 0.0, True, scale=SCALE)
    q_grad, k_grad, v_grad, _ = ATEN._scaled_dot_product_efficient_attention_backward(
        out, q, k_all, v_all, None, out, lse, none, none, 0.0, [True, True, True, False], True, scale=SCALE)
    return [out, lse], [q_grad, summed(k_grad, kv_heads), summed(v_grad, kv_heads)]


def layer_norm(dtype, batch, seq, dim):
    x, w = (torch.empty(*sizes, dtype=dtype, device="cuda") for sizes in [(batch, seq, dim), (dim,)])
    out, mean, rstd = ATEN.native_layer_norm(x, [dim], w, w, 1e-5)
    return [out, mean, rstd], list(ATEN.native_layer_norm_backward(out, x, [dim], mean, rstd, w, w, [True, True, True]))


def main():
    cases = []
    with FakeTensorMode():
        for name, dtype in TYPES.items():
            for kind, function, all_sizes in [("attention", attention, ATTENTIONS), ("layer_norm", layer_norm, NORMS)]:
                for sizes in all_sizes:
                    results, gradients = function(dtype, *sizes)
                    cases.append({"operator": kind, "dtype": name, "sizes": list(sizes),
                                  "results": [describe(t) for t in results], "gradients": [describe(t) for t in gradients]})
    lines = ",\n".join(json.dumps(case) for case in cases)
    path = pathlib.Path(__file__).resolve().parent / "cuda_results.json"
    path.write_text(f'{{"torch": "{torch.__version__.split("+")[0]}", "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
