"""The child that trains in PyTorch eager: a line of JSON in, a line of JSON out, until the input ends.

  {"kind": "train", "config", "batch", "seq", "dtype", "checkpointing", "steps"} -> {"step_seconds", "losses", "parameters", "peak_bytes"}
  {"kind": "evaluate", "hf", "text", "held_out", "batch", "seq", "batches"}      -> {"loss"}

Mixed precision as ours: fp32 masters, moments and gradients of the optimizer; parameters, activations and the gradients of
autograd in bf16; the loss in fp32. The gradient is clipped to norm 1; AdamW is fused."""
import argparse
import gc
import json
import sys
import time
import traceback

import torch

import eager_model

LEARNING_RATE, BETAS, EPSILON, DECAY, MAX_NORM = 8e-4, (0.9, 0.95), 1e-8, 0.1, 1.0


class Step:
    def __init__(self, request, device):
        self.model = eager_model.build(request["config"], device)
        self.model.checkpointing = request["checkpointing"]
        self.masters = list(self.model.parameters())
        self.values = self.masters
        if request["dtype"] == "bfloat16":
            self.masters = [p.detach().clone() for p in self.values]
            self.model.to(torch.bfloat16)
            self.values = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.masters, lr=LEARNING_RATE, betas=BETAS, eps=EPSILON, weight_decay=DECAY, fused=True)

    def run(self, tokens, targets):
        apart = self.values is not self.masters
        if apart:
            with torch.no_grad():
                torch._foreach_copy_(self.values, self.masters)
        loss = eager_model.loss_of(self.model, tokens, targets)
        loss.backward()
        if apart:
            for value, master in zip(self.values, self.masters):
                master.grad, value.grad = value.grad.float(), None
        torch.nn.utils.clip_grad_norm_(self.masters, MAX_NORM)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()  # waits for the device, as ours does for its metrics


def train(request, device):
    torch.manual_seed(0)
    cuda = device == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    step = Step(request, device)
    # Bytes, as ours reads text.
    batches = torch.randint(0, 256, (request["steps"], request["batch"], request["seq"] + 1))
    losses, seconds = [], []
    for batch in batches:
        begin = time.perf_counter()
        here = batch.to(device)
        losses.append(step.run(here[:, :-1].contiguous(), here[:, 1:].contiguous()))
        seconds.append(time.perf_counter() - begin)
    peak = torch.cuda.memory_stats()["requested_bytes.all.peak"] if cuda else None
    return {"step_seconds": seconds, "losses": losses, "parameters": sum(p.numel() for p in step.model.parameters()),
            "peak_bytes": peak}


@torch.no_grad()
def evaluate(request, device):
    model = eager_model.load(request["hf"], device).eval()
    with open(request["text"], "rb") as file:
        text = file.read()
    held_out = torch.tensor(list(text[len(text) - int(len(text) * request["held_out"]):]))
    length = request["seq"]
    rows = min((len(held_out) - 1) // length, request["batches"] * request["batch"])
    total = 0.0
    for row in range(rows):
        tokens = held_out[row * length:(row + 1) * length + 1].to(device)
        total += eager_model.loss_of(model, tokens[None, :-1], tokens[None, 1:].contiguous()).item()
    return {"loss": total / rows}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    device = parser.parse_args().device
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    if device == "cuda":
        torch.zeros(1, device=device)  # the context, before anything is timed
    print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"train": train, "evaluate": evaluate}[request["kind"]](request, device)
        except Exception as error:  # the next request is another one
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:500]}
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()  # the other side needs the card
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
