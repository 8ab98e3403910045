#!/usr/bin/env python3
"""How far sums of gradients are off where FSDP2 rounds those of bfloat16 parameters, as TorchTitan does with training.dtype =
"bfloat16": the type of the sum, and its distance from the same in float32 relative to that, after 1 to 256 microbatches on two
ranks. Of torch 2.11.0, on CPUs, in about a minute:

    python3 -m venv VENV && VENV/bin/pip install torch==2.11.0
    VENV/bin/python rounded_gradients.py
"""
import socket

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

RANKS, LAYERS, WIDTH, VOCABULARY = 2, 2, 128, 1000


def gradients(held_in, microbatches, mesh, rank):
    """Of parameters that are held in a type, whose values are the same in both, and computed with in bfloat16."""
    torch.manual_seed(0)
    layers = [torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0, batch_first=True) for _ in range(LAYERS)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, VOCABULARY)).to(torch.bfloat16).to(held_in)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for module in [*model, model]:
        fully_shard(module, mesh=mesh, mp_policy=policy)
    for i in range(microbatches):
        torch.manual_seed(100 + i * RANKS + rank)
        inputs = torch.randn(4, 64, WIDTH, dtype=torch.bfloat16)
        targets = torch.randint(VOCABULARY, (4 * 64,))
        logits = model(inputs).float().flatten(0, 1)
        (torch.nn.functional.cross_entropy(logits, targets) / microbatches).backward()
    return [(p.grad.dtype, p.grad.full_tensor().double()) for p in model.parameters()]


def run(rank, port):
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    for microbatches in (1, 4, 16, 64, 256):
        rounded = gradients(torch.bfloat16, microbatches, mesh, rank)
        whole = gradients(torch.float32, microbatches, mesh, rank)
        off = sum((a - b).square().sum() for (_, a), (_, b) in zip(rounded, whole)).sqrt()
        norm = sum(b.square().sum() for _, b in whole).sqrt()
        if rank == 0:
            print(f"{microbatches:4} microbatches: {rounded[0][0]}, off by {100 * off / norm:.2f} %", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(run, (port,), RANKS)
