"""The same training on another device: losses and gradient norms of every step, beside the CPU's.

Tolerances, relative to the CPU's value of the step:
  fp32   loss 1e-4, norm 1e-3. The devices add in another order: some 1e-6 of an operator's result. AdamW divides by the root of
         the second moment, so a parameter whose gradient is mostly rounding moves by a whole learning rate anyway, and the
         difference grows from step to step. Dropout is the same on every device, element by element; matrices are multiplied
         without TF32, which alone would take 1e-3.
  bf16   loss 2e-2, norm 5e-2 beside fp32 on the CPU: 8 bits of mantissa; the bounds of tests/integration/parity_test.cc.
  same device (full checkpointing, a resumed run): loss 1e-5, norm 1e-4. The operators and their order are the same; what is left
         are kernels that add with atomics, in the order of the day."""
import math
import os

import check_recipes as recipes

FP32, BF16, SAME = (1e-4, 1e-3), (2e-2, 5e-2), (1e-5, 1e-4)
RANKS = 2


def deviation(expected, actual):
    apart = abs(actual - expected) / max(abs(expected), 1e-30)
    return apart if math.isfinite(apart) else math.inf  # what is no number compares as nothing


def compare(expected, actual, tolerance, first=1):
    """(state, text, figures) of two lists of metrics, from step `first` on."""
    expected = [entry for entry in expected if entry["step"] >= first]
    actual = {entry["step"]: entry for entry in actual}
    missing = [entry["step"] for entry in expected if entry["step"] not in actual]
    if missing or not expected:
        return "failed", f"steps {missing} are missing", {}
    worst = {"loss": (0.0, 0), "grad_norm": (0.0, 0)}
    for entry in expected:
        for name in worst:
            worst[name] = max(worst[name], (deviation(entry[name], actual[entry["step"]][name]), entry["step"]))
    figures = {"steps": len(expected), "loss_deviation": worst["loss"][0], "norm_deviation": worst["grad_norm"][0],
               "loss_tolerance": tolerance[0], "norm_tolerance": tolerance[1],
               "first_loss": actual[expected[0]["step"]]["loss"], "last_loss": actual[expected[-1]["step"]]["loss"]}
    good = worst["loss"][0] <= tolerance[0] and worst["grad_norm"][0] <= tolerance[1]
    text = (f"loss {worst['loss'][0]:.1e} apart (step {worst['loss'][1]}; allowed {tolerance[0]:.0e}), gradient norm "
            f"{worst['grad_norm'][0]:.1e} (step {worst['grad_norm'][1]}; allowed {tolerance[1]:.0e}), {len(expected)} steps")
    return ("passed" if good else "failed"), text, figures


class Family:
    """One model and its trainings."""

    def __init__(self, context, name, config, batch, seq, steps):
        self.context, self.name, self.steps, self.config = context, name, steps, config
        self.sections = recipes.Recipe(name, config, batch, seq, "float32").sections(context.lego.config(name, config), steps)
        self.runs = {}

    def train(self, run, *sections, device=None, **options):
        """Kept under the run's name."""
        patience = {"comm": {"init_timeout_seconds": 45, "train_timeout_seconds": 20}}
        training = self.context.lego.train(f"parity-{self.name}-{run}", self.sections, patience, {"training": {"seed": 17}}, *sections,
                                           device=device or self.context.device, limit=70, **options)
        self.runs[run] = training
        return training

    def line(self, what, training, reference, tolerance, first=1):
        """`reference`: another training, which must have come to its end."""
        name = f"{self.name}: {what}"
        for one in (reference, training):
            if one is None or one.error:
                late = one is None or one.out_of_time
                why = "what it is compared with did not run" if one is None else one.error
                return self.context.add(name, "not run" if late else "failed", why)
        state, text, figures = compare(reference.metrics, training.metrics, tolerance, first)
        self.context.add(name, state, text, **figures)

    def beside(self, what, run, reference, tolerance, *sections, **options):
        if self.context.left() < 3:
            return self.context.add(f"{self.name}: {what}", "not run", "the part's time was up")
        self.line(what, self.train(run, *sections, **options), self.runs.get(reference), tolerance)


def program(family):
    """The captured step in place of the eager one, with a step traced, beside the prediction of that step."""
    context, step = family.context, family.steps // 2
    family.beside("as a program beside eager", "program", "fp32", SAME, {"compile": {"enable": True}},
                  {"metrics": {"trace_steps": [step]}})
    run, name = family.runs.get("program"), f"{family.name}: traced step beside the predicted one"
    if run is None or run.error:
        return context.add(name, "not run", "there was no run")
    measured = os.path.join(run.directory, "traces", f"step-{step}-rank-0.json.gz")
    if not os.path.exists(measured):
        return context.add(name, "failed", f"there is no {os.path.basename(measured)}")
    path, _ = context.lego.recipe("predicted-" + family.name.split()[0], family.sections, {"training": {"seed": 17}},
                                  {"compile": {"enable": True}})
    predicted = os.path.join(context.lego.folder, "predicted.json.gz")
    made = context.run("lego simulate --trace", [context.programs["lego"], "simulate", f"--cluster={context.cluster}",
                                                 f"--recipe={path}", f"--trace={predicted}"], min(30, context.left()))
    result, compared = context.lego.call("lego compare-trace", ["compare-trace", predicted, measured], min(30, context.left()))
    good = made.code == 0 and result.code == 0 and compared is not None
    context.add(name, "passed" if good else "failed", "compared" if good else f"{made.last_line()} {result.last_line()}")


def resume(family):
    """Stops at a checkpoint in the middle and goes on: the steps after it are those of the run without a stop."""
    context, middle = family.context, family.steps // 2
    if context.left() < 6:
        return context.add(f"{family.name}: resumed", "not run", "the part's time was up")
    saving = {"checkpoint": {"enable_checkpoint": True, "interval": 1000}}
    begun = family.train("resumed", saving, {"training": {"steps": middle}})
    if begun.error:
        return family.line("resumed", begun, family.runs.get("fp32"), SAME)
    gone_on = family.train("resumed", saving)
    if not gone_on.error and gone_on.outcome.get("resumed_from") != middle:
        return context.add(f"{family.name}: resumed", "failed", f"it went on from {gone_on.outcome.get('resumed_from')}, not {middle}")
    family.line(f"resumed at step {middle}", gone_on, family.runs.get("fp32"), SAME, first=middle + 1)


def flight(family):
    """The flight record of the run on the device is there and says that everything was matched."""
    context, run, name = family.context, family.runs.get("fp32"), f"{family.name}: flight record"
    if run is None or run.error:
        return context.add(name, "not run", "there was no run")
    result, record = context.lego.call("lego fr", ["fr", run.directory], min(30, context.left()))
    ring = os.path.join(run.directory, "flight", "rank-0")
    if result.code != 0 or record is None:
        return context.add(name, "failed", result.killed or f"ended with code {result.code}: {result.last_line()}")
    operations, verdict = len(record["operations"]), record["analysis"]["verdict"]
    good = os.path.exists(ring) and record["ranks"] == [0] and not record["missing"] and operations > 0 and verdict == "fully_matched"
    context.add(name, "passed" if good else "failed", f"{operations} operations, {verdict}", operations=operations)


LAYOUTS = {"FSDP 2": {"parallelism": {"data_parallel_shard_degree": 2}},
           "TP 2": {"parallelism": {"data_parallel_shard_degree": 1, "tensor_parallel_degree": 2}},
           "PP 2": {"parallelism": {"data_parallel_shard_degree": 1, "pipeline_parallel_degree": 2}}}


def layout(family, what, where, **options):
    """Two ranks beside one of the CPU."""
    batch = family.sections["training"]["local_batch_size"]
    halved = {"training": {"local_batch_size": batch // 2}} if what.startswith("FSDP") else {}
    name, run = f"{what} {where} beside one rank on the CPU", f"{what}-{where}".replace(" ", "-")
    family.beside(name, run, "cpu", FP32, LAYOUTS[what], halved, **options)


def several_cards(family, layouts):
    context, where = family.context, f"on {RANKS} cards"
    for what in layouts:
        if context.cards < RANKS:
            why = f"needs {RANKS} cards, and {context.cards} is there"
            context.add(f"{family.name}: {what} {where}", "skipped", why)
            continue
        layout(family, what, where, ranks=RANKS)


def several_hosts(family, layouts):
    """Calls of `lego train` as of two hosts, whose ranks share the card: launcher, rendezvous and NCCL over sockets."""
    for what in layouts:
        layout(family, what, f"on {RANKS} hosts", hosts=RANKS)


def part(context):
    tiny = context.quick
    # 100 tokens: no multiple of the 32 to which attention pads.
    sizes = {"batch": 4, "seq": 36, "steps": 6} if tiny else {"batch": 8, "seq": 100, "steps": 12}
    llama = Family(context, "llama", recipes.TINY_LLAMA if tiny else recipes.PARITY_LLAMA, **sizes)
    gpt2 = Family(context, "gpt2 with dropout", recipes.TINY_GPT2 if tiny else recipes.PARITY_GPT2, **sizes)
    for family in (llama, gpt2):
        family.train("cpu", device="cpu")
        family.beside(f"fp32 on {context.device} beside the CPU", "fp32", "cpu", FP32)
    for family in (llama, gpt2):
        family.beside("bf16 beside fp32 of the CPU", "bf16", "cpu", BF16, {"training": {"mixed_precision_param": "bfloat16"}})
        flight(family)
    for family in (gpt2, llama):
        family.beside("full checkpointing beside none", "full", "fp32", SAME, {"activation_checkpoint": {"mode": "full"}})
    for family in (gpt2, llama):
        program(family)
    for family in (gpt2, llama):
        resume(family)
    several_hosts(llama, ("FSDP 2", "PP 2"))
    several_cards(llama, ("FSDP 2", "TP 2"))
    several_cards(gpt2, ("FSDP 2",))
    context.note("Tolerances are relative to each step's value; their reasons stand in check_parity.py.")
