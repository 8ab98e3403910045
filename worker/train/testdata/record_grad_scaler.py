#!/usr/bin/env python3
"""Records what torch.amp.GradScaler and an optimizer do with gradients of which some are not finite: grad_scaler.txt beside this
file. Of torch 2.11.0; run again only when a case is added.

    python3 -m venv VENV && VENV/bin/pip install torch==2.11.0
    VENV/bin/python record_grad_scaler.py

A line each: of each parameter "shape ROWS COLUMNS", "gradient STEP PARAMETER NUMBER ..." (not scaled) and "bad STEP PARAMETER
ELEMENT NUMBER", which takes the place of that element once it is scaled; then of each case "case NAME", "value STEP PARAMETER
NUMBER ..." and "scale STEP NUMBER", after the step (step 0: before the first). Gradients are clipped to a norm of 1.
"""
import pathlib

import torch

assert torch.__version__.startswith("2.11.0"), torch.__version__
STEPS = 14
SHAPES = [(3, 4), (5, 2)]
INITIAL_SCALE, GROWTH_INTERVAL = 1024.0, 3
BAD = {1: (0, 2, "inf"), 2: (1, 7, "nan"), 5: (1, 0, "-inf"), 9: (0, 11, "nan"), 10: (0, 0, "inf")}
CASES = {
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.9, 0.95), weight_decay=0.1, fused=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.1, betas=(0.9, 0.95), weight_decay=0.1, fused=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1, fused=True),
    "Muon": lambda p: torch.optim.Muon(p, lr=0.1, weight_decay=0.1),
}


def numbers(tensor):
    return " ".join(f"{x:.9g}" for x in tensor.detach().flatten().tolist())


def main():
    torch.manual_seed(11)
    start = [torch.randn(s) for s in SHAPES]
    gradients = [[torch.randn(s) for s in SHAPES] for _ in range(STEPS)]
    lines = [f"shape {rows} {columns}" for rows, columns in SHAPES]
    lines += [f"gradient {step + 1} {i} {numbers(g)}" for step, of in enumerate(gradients) for i, g in enumerate(of)]
    lines += [f"bad {step} {i} {element} {number}" for step, (i, element, number) in BAD.items()]
    for name, make in CASES.items():
        lines.append(f"case {name}")
        parameters = [torch.nn.Parameter(p.clone()) for p in start]
        optimizer = make(parameters)
        scaler = torch.amp.GradScaler("cpu", init_scale=INITIAL_SCALE, growth_interval=GROWTH_INTERVAL)
        lines += [f"value 0 {i} {numbers(p)}" for i, p in enumerate(parameters)]
        lines.append(f"scale 0 {INITIAL_SCALE:.9g}")
        for step in range(1, STEPS + 1):
            scaler.scale(torch.zeros(()))  # makes its tensors, of which there are none before the first loss
            for i, parameter in enumerate(parameters):
                parameter.grad = gradients[step - 1][i] * scaler.get_scale()
                if BAD.get(step, (None,))[0] == i:
                    parameter.grad.view(-1)[BAD[step][1]] = float(BAD[step][2])
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            scaler.step(optimizer)
            scaler.update()
            lines += [f"value {step} {i} {numbers(p)}" for i, p in enumerate(parameters)]
            lines.append(f"scale {step} {scaler.get_scale():.9g}")
    pathlib.Path(__file__).with_name("grad_scaler.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
