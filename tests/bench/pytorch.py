"""Training on this machine's CPU by LegoAI and by PyTorch of the same version, in turns: eager, and compiled.

    pytorch.py [--rounds N] [--json] [PART]      PART of MODEL-RANKS-DTYPE-WAY: "llama-1-float32-eager"

The same model (tools/gpu/eager_model.py has PyTorch's), weights, tokens, threads, dtype, loss, clipping and AdamW (PyTorch's
fused one, its fastest on CPUs). Each round makes a step of the one and a step of the other, and who goes first changes; a row has
the medians over the rounds, also of the ratios within a round: PyTorch's seconds divided by LegoAI's, above 1 where LegoAI is the
faster. `processor_ratio` is that of the processor's seconds, which other programs disturb less. The losses of the first steps
tell whether both train the same. With two ranks: FSDP over Gloo, PyTorch's fully_shard around each block and the whole. Of the
way "compiled", LegoAI trains the program of its step (compile.enable) and PyTorch what torch.compile (inductor) makes of model
and loss; compilation is not in the seconds. Wants `tools/fetch_deps transformers`, which brings PyTorch's Python part, and for
torch.compile a C++ compiler and Python's headers.
"""
import argparse
import itertools
import json
import os
import random
import resource
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BENCH = os.path.join(ROOT, "bazel-bin/tests/bench/pytorch_bench")
STEPS, WARM_UP, BATCHES = 1, 2, 16
SEQ, BATCH = 256, 4  # of all ranks
OPTIMIZER = {"lr": 3e-4, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1}
MAX_NORM = 1.0
MODELS = {
    "llama": {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 8192, "hidden_size": 512,
              "intermediate_size": 1408, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4,
              "head_dim": 64,
              "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": False,
              "hidden_act": "silu", "initializer_range": 0.02},
    "gpt2": {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 8192, "n_embd": 512, "n_layer": 6,
             "n_head": 8, "n_positions": 512, "layer_norm_epsilon": 1e-5, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
             "resid_pdrop": 0.0, "tie_word_embeddings": True, "initializer_range": 0.02, "activation_function": "gelu_new"},
}


def write_job(folder, model, world, dtype, way):
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(MODELS[model], file)
    lines = [f"[model]\nname = \"config.json\"\n[training]\nseq_len = {SEQ}\nlocal_batch_size = {BATCH // world}\n"
             f"global_batch_size = {BATCH}\nmax_norm = {MAX_NORM}\nmixed_precision_param = \"{dtype}\"\n"
             f"[parallelism]\ndata_parallel_shard_degree = {world}\n[compile]\nenable = {str(way == 'compiled').lower()}\n"
             f"[optimizer]\nname = \"AdamW\""]
    lines += [f"{key} = {value!r}" for key, value in OPTIMIZER.items()]
    with open(os.path.join(folder, "recipe.toml"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    rng = random.Random(7)
    vocab, count = MODELS[model]["vocab_size"], BATCHES * BATCH * (SEQ + 1)
    with open(os.path.join(folder, "tokens.bin"), "wb") as file:
        # Small numbers are the more frequent, as in a text.
        file.write(struct.pack(f"<{count}q", *(int(vocab * rng.random() ** 4) for _ in range(count))))


class PyTorch:
    """One rank of PyTorch, in this process."""

    def __init__(self, folder, rank, world, port, threads, dtype, way):
        sys.path.insert(0, os.path.join(ROOT, "tools/gpu"))
        import eager_model
        import torch
        torch.set_num_threads(threads)
        self.torch, self.loss_of, self.rank, self.world, self.step = torch, eager_model.loss_of, rank, world, 0
        self.model = eager_model.load(os.path.join(folder, "weights"), "cpu")
        self.parameters = sum(p.numel() for p in self.model.parameters())
        if world > 1:
            self.shard(port, dtype)
        if way == "compiled":
            self.loss_of = torch.compile(self.loss_of)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=OPTIMIZER["lr"], eps=OPTIMIZER["eps"], fused=True,
                                           betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]), weight_decay=OPTIMIZER["weight_decay"])
        with open(os.path.join(folder, "tokens.bin"), "rb") as file:
            self.tokens = torch.frombuffer(bytearray(file.read()), dtype=torch.int64).view(BATCHES, BATCH, SEQ + 1)

    def shard(self, port, dtype):
        torch = self.torch
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=self.rank, world_size=self.world)
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (self.world,))
        policy = MixedPrecisionPolicy()
        if dtype == "bfloat16":
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in self.model.layers if hasattr(self.model, "layers") else self.model.h:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(self.model, mesh=mesh, mp_policy=policy)

    def train(self):
        rows = BATCH // self.world
        batch = self.tokens[self.step % BATCHES, self.rank * rows:(self.rank + 1) * rows]
        self.step += 1
        loss = self.loss_of(self.model, batch[:, :-1].contiguous(), batch[:, 1:].contiguous())
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        loss = loss.detach()
        if self.world > 1:  # the loss of all, as ours is
            self.torch.distributed.all_reduce(loss)
            loss /= self.world
        return loss.item()


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def serve_pytorch(folder, index, world, port, threads, dtype, way):
    """Answers as pytorch_bench does."""
    rank = PyTorch(folder, int(index), int(world), int(port), int(threads), dtype, way)
    print("ready", rank.parameters, flush=True)
    for line in sys.stdin:
        processor, begin = processor_seconds(), time.monotonic()
        losses = [rank.train() for _ in range(int(line))]
        print(json.dumps({"seconds": time.monotonic() - begin, "processor_seconds": processor_seconds() - processor,
                          "losses": losses}), flush=True)


class Side:
    """The ranks of LegoAI, or those of PyTorch."""

    def __init__(self, command, world, environment):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.ranks = [subprocess.Popen([str(word) for word in command(rank, port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       text=True, env=environment) for rank in range(world)]
        self.parameters = int([self.line(rank) for rank in self.ranks][0].split()[1])

    @staticmethod
    def line(rank):
        line = rank.stdout.readline()
        if not line:
            raise SystemExit(f"{rank.args[0]} ended with {rank.wait()}; its message is above")
        return line

    def train(self, steps):
        """Seconds of the slowest rank, processor's seconds of all, losses."""
        for rank in self.ranks:
            rank.stdin.write(f"{steps}\n")
            rank.stdin.flush()
        answers = [json.loads(self.line(rank)) for rank in self.ranks]
        seconds, processor = max(a["seconds"] for a in answers), sum(a["processor_seconds"] for a in answers)
        return seconds / steps, processor / steps, answers[0]["losses"]

    def end(self):
        for rank in self.ranks:
            rank.stdin.close()
        for rank in self.ranks:
            rank.wait()


def python_environment():
    """Where the Python part of torch lies, and what it loads (tests/transformers/run.sh)."""
    packages, nvidia = os.path.join(ROOT, ".transformers"), os.path.join(os.path.realpath(os.path.join(ROOT, ".deps")), "nvidia")
    if not os.path.isdir(os.path.join(packages, "torch")):
        raise SystemExit(f"{packages} is not there: run tools/fetch_deps transformers")
    libraries = ":".join([f"{packages}/stubs", f"{nvidia}/cu13/lib", f"{nvidia}/nccl/lib"])
    # The Python part is unpacked without headers and libraries, which inductor's kernels are compiled with.
    wheel = os.path.join(os.path.dirname(nvidia), "torch")
    headers = f"{wheel}/include:{wheel}/include/torch/csrc/api/include"
    return {**os.environ, "PYTHONPATH": packages, "LD_LIBRARY_PATH": libraries, "PYTHONDONTWRITEBYTECODE": "1", "CPATH": headers,
            "LIBRARY_PATH": f"{wheel}/lib"}


def compare(model, world, dtype, way, rounds):
    threads = max(1, len(os.sched_getaffinity(0)) // world)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    with tempfile.TemporaryDirectory() as folder:
        if world > 1:  # weights of one process: those that each rank has its part of
            write_job(folder, model, 1, "float32", "eager")
            Side(lambda rank, port: [BENCH, folder, rank, 1, port, threads], 1, environment).end()
        write_job(folder, model, world, dtype, way)
        ours = Side(lambda rank, port: [BENCH, folder, rank, world, port, threads], world, environment)
        theirs = Side(lambda rank, port: [sys.executable, __file__, "--rank", folder, rank, world, port, threads, dtype, way],
                      world, {**python_environment(), "OMP_NUM_THREADS": str(threads)})
        first = [side.train(WARM_UP)[2] for side in (ours, theirs)]
        turns = []
        for at in range(rounds):
            sides = [ours, theirs] if at % 2 == 0 else [theirs, ours]
            measured = {id(side): side.train(STEPS) for side in sides}
            turns.append((measured[id(ours)], measured[id(theirs)]))
        parameters = ours.parameters, theirs.parameters
        ours.end()
        theirs.end()
    if parameters[0] != parameters[1]:
        raise SystemExit(f"{model}: {parameters[0]} parameters of ours, {parameters[1]} of PyTorch's")
    ratios = sorted(their[0] / our[0] for our, their in turns)
    return {"model": model, "parameters_millions": parameters[0] / 1e6, "ranks": world, "threads": threads, "dtype": dtype,
            "way": way,
            "lego_seconds": statistics.median(our[0] for our, _ in turns),
            "pytorch_seconds": statistics.median(their[0] for _, their in turns),
            "ratio": statistics.median(ratios), "ratio_quarter": ratios[len(ratios) // 4],
            "ratio_three_quarters": ratios[3 * len(ratios) // 4],
            "processor_ratio": statistics.median(their[1] / our[1] for our, their in turns),
            "largest_loss_difference": max(abs(a - b) for a, b in zip(*first)), "first_loss": first[0][0]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("part", nargs="?", default="")
    given = parser.parse_args()
    from report import report
    rows = []
    kinds = [(1, "float32", "eager"), (2, "float32", "eager"), (2, "bfloat16", "eager"), (1, "float32", "compiled")]
    for model, (world, dtype, way) in itertools.product(MODELS, kinds):
        if given.part in f"{model}-{world}-{dtype}-{way}":
            rows.append(compare(model, world, dtype, way, given.rounds))
    report(rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        serve_pytorch(*sys.argv[2:])
    else:
        main()
