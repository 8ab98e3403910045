#!/usr/bin/env python3
"""Records what optimizers of torch.optim do to some parameters under given gradients: optimizers.txt beside this file. Of torch
2.11.0; run again only when a case is added.

    python3 -m venv VENV && VENV/bin/pip install torch==2.11.0
    VENV/bin/python record_optimizers.py

A line each: of each parameter "shape ROWS COLUMNS" and "gradient STEP PARAMETER NUMBER ..."; then of each case "case NAME" and
"value STEP PARAMETER NUMBER ..." (step 0: before the first). In a case whose name ends in _bf16 parameters and gradients are rounded
to bfloat16 first and held in it, and so is what the optimizer keeps. (The fused SGD of this version is wrong for bfloat16 on CPUs:
a first step of 0.1 x gradient is off by up to 0.35. What is recorded is the one that is not fused.)
"""
import pathlib

import torch

assert torch.__version__.startswith("2.11.0"), torch.__version__
STEPS = 4
SHAPES = [(6, 10), (12, 5), (8, 8)]
CASES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
    "sgd_decay": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.2, fused=True),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.2, fused=True),
    "sgd_nesterov": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.2, fused=True),
    "muon": lambda p: torch.optim.Muon(p, lr=0.1, weight_decay=0.1),
    "muon_plain": lambda p: torch.optim.Muon(p, lr=0.1, weight_decay=0.0, momentum=0.8, nesterov=False, ns_steps=3),
    "muon_match": lambda p: torch.optim.Muon(p, lr=0.1, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
    "adam_bf16": lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.9, 0.95), weight_decay=0.1, fused=True),
    "adamw_bf16": lambda p: torch.optim.AdamW(p, lr=0.1, betas=(0.9, 0.95), weight_decay=0.1, fused=True),
    "sgd_bf16": lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.2),
    "sgd_nesterov_bf16": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.2),
    "muon_bf16": lambda p: torch.optim.Muon(p, lr=0.1, weight_decay=0.1),
}


def numbers(tensor):
    return " ".join(f"{x:.9g}" for x in tensor.detach().flatten().tolist())


def main():
    torch.manual_seed(7)
    start = [torch.randn(s) for s in SHAPES]
    gradients = [[torch.randn(s) for s in SHAPES] for _ in range(STEPS)]
    lines = [f"shape {rows} {columns}" for rows, columns in SHAPES]
    lines += [f"gradient {step + 1} {i} {numbers(g)}" for step, of in enumerate(gradients) for i, g in enumerate(of)]
    for name, make in CASES.items():
        lines.append(f"case {name}")
        dtype = torch.bfloat16 if name.endswith("_bf16") else torch.float32
        parameters = [torch.nn.Parameter(p.to(dtype, copy=True)) for p in start]
        lines += [f"value 0 {i} {numbers(p)}" for i, p in enumerate(parameters)]
        optimizer = make(parameters)
        for step in range(1, STEPS + 1):
            for i, parameter in enumerate(parameters):
                parameter.grad = gradients[step - 1][i].to(dtype, copy=True)
            optimizer.step()
            lines += [f"value {step} {i} {numbers(p)}" for i, p in enumerate(parameters)]
    pathlib.Path(__file__).with_name("optimizers.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
