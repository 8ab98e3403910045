#!/usr/bin/env python3
"""Records what torch.amp.GradScaler and an optimizer do with gradients of which some are not finite: grad_scaler.txt beside this
file (recording.py). Gradients are clipped to a norm of 1.

Besides there are "bad STEP PARAMETER ELEMENT NUMBER", which takes the place of that element of a gradient once it is scaled, and
"scale STEP NUMBER" after the step.
"""
import torch

import recording

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


def main():
    record = recording.Record(11, SHAPES, STEPS)
    for step, bad in BAD.items():
        record.line("bad", step, *bad)
    for name, make in CASES.items():
        parameters = [torch.nn.Parameter(p.clone()) for p in record.start]
        optimizer = make(parameters)
        if name == "SGD":  # where the first step is skipped, the fused SGD of this version leaves its momentum without a value
            for parameter in parameters:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        scaler = torch.amp.GradScaler("cpu", init_scale=INITIAL_SCALE, growth_interval=GROWTH_INTERVAL)
        record.case(name, parameters)
        record.line("scale", 0, f"{INITIAL_SCALE:.9g}")
        for step in range(1, STEPS + 1):
            scaler.scale(torch.zeros(()))  # makes its tensors, of which there are none before the first loss
            for i, parameter in enumerate(parameters):
                parameter.grad = record.gradients[step - 1][i] * scaler.get_scale()
                if BAD.get(step, (None,))[0] == i:
                    parameter.grad.view(-1)[BAD[step][1]] = float(BAD[step][2])
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            scaler.step(optimizer)
            scaler.update()
            record.tensors("value", step, parameters)
            record.line("scale", step, f"{scaler.get_scale():.9g}")
    record.write(__file__)


if __name__ == "__main__":
    main()
