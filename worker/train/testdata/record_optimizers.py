#!/usr/bin/env python3
"""Records what optimizers of torch.optim do to some parameters under given gradients: optimizers.txt beside this file
(recording.py).

In a case whose name ends in _bf16 parameters and gradients are rounded to bfloat16 first and held in it, and so is what the
optimizer keeps. (The fused SGD of this version is wrong for bfloat16 on CPUs: a first step of 0.1 x gradient is off by up to
0.35. What is recorded is the one that is not fused.) In one that ends in _masters parameters are held in bfloat16, too; what is
updated are copies of them in float32, "master STEP PARAMETER NUMBER ...", under the gradients as they are, and after each step
parameters are copied from these.
"""
import torch

import recording

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
    "adam_masters": lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.9, 0.95), weight_decay=0.1, fused=True),
    "adamw_masters": lambda p: torch.optim.AdamW(p, lr=0.1, betas=(0.9, 0.95), weight_decay=0.1, fused=True),
    "sgd_nesterov_masters": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.8, nesterov=True, weight_decay=0.2, fused=True),
    "muon_masters": lambda p: torch.optim.Muon(p, lr=0.1, weight_decay=0.1),
}


def main():
    record = recording.Record(7, SHAPES, STEPS)
    for name, make in CASES.items():
        masters = name.endswith("_masters")
        dtype = torch.bfloat16 if masters or name.endswith("_bf16") else torch.float32
        parameters = [torch.nn.Parameter(p.to(dtype, copy=True)) for p in record.start]
        record.case(name, parameters)
        updated = [torch.nn.Parameter(p.detach().float()) for p in parameters] if masters else parameters
        optimizer = make(updated)
        for step in range(1, STEPS + 1):
            for i, parameter in enumerate(updated):
                parameter.grad = record.gradients[step - 1][i].to(parameter.dtype, copy=True)
            optimizer.step()
            if masters:
                record.tensors("master", step, updated)
                for parameter, master in zip(parameters, updated):
                    parameter.data.copy_(master.data)
            record.tensors("value", step, parameters)
    record.write(__file__)


if __name__ == "__main__":
    main()
