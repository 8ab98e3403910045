"""Step times: ours, eager and as a program (compile.enable), beside plain PyTorch eager (eager_model.py), in turns - ours,
program, theirs, ours, program, theirs - so that a card that grows warm or slow does so for all, and beside the prediction.
Nothing is asserted about time.

Before, that both compute the same: a model that was trained here and exported gives the same held-out loss there, and has as many
parameters."""
import os
import sys

import check_process
import check_recipes as recipes
from check_peaks import median, predict

STEPS, WARM_UP, ROUNDS = 12, 3, 2
SIDES = ("ours", "program", "theirs")
SAME_LOSS = 2e-6  # relative, in fp32: sums in another order
COLUMNS = [("name", "recipe", ""), ("ours_ms", "ours, ms", ",.1f"), ("program_ms", "as a program, ms", ",.1f"),
           ("theirs_ms", "PyTorch eager, ms", ",.1f"), ("ratio", "ours / eager", ".3f"),
           ("predicted_ms", "predicted, ms", ",.1f"), ("predicted_ratio", "predicted / ours", ".3f"),
           ("theirs_peak_mib", "eager's peak, MiB", ",.0f"), ("rounds", "rounds", ".0f")]


class Eager:
    """The child with PyTorch; started when first asked, and anew after it broke."""

    def __init__(self, context):
        self.context, self.child, self.facts = context, None, {}

    def start(self):
        here = os.path.dirname(os.path.abspath(__file__))
        command = [sys.executable, os.path.join(here, "eager_train.py"), "--device", self.context.device]
        self.child = check_process.Conversation(command, env={"PYTHONUNBUFFERED": "1"})
        self.facts = self.child.ask(None, min(90, self.context.left()))
        return self.facts.get("error", "")

    def ask(self, request, limit=120):
        why = self.start() if self.child is None or self.child.broken else ""
        if why:
            return {"error": f"PyTorch's child did not start: {why}"}
        seconds = min(limit, self.context.left())
        answer = self.child.ask(request, seconds)
        if self.child.broken and seconds < limit:
            answer["out_of_time"] = True
        return answer

    def close(self):
        if self.child:
            self.context.log.add("PyTorch eager", self.child.close())
            self.child = None


def same_arithmetic(context, eager):
    families = {"llama": recipes.TINY_LLAMA_3_2, "gpt2": recipes.TINY_GPT2}
    for name, config in families.items():
        config = {**config, "initializer_range": 0.2}  # of 0.02 attention is nearly uniform, and tells little of positions
        what = f"eager {name} is our {name}"
        recipe = recipes.Recipe(name, config, 4, 36, "float32")
        training = context.lego.train("eager-" + name, recipe.sections(context.lego.config("eager-" + name, config), 8),
                                      {"validation": {"enable": True, "steps": 4}, "checkpoint": {"last_save_in_hf": True}},
                                      device=context.device)
        if training.error:
            context.add(what, "not run" if training.out_of_time else "failed", training.error)
            continue
        answer = eager.ask({"kind": "evaluate", "hf": os.path.join(context.lego.folder, training.outcome["hf_directory"]),
                            "text": context.lego.text, "held_out": 0.05, "batch": recipe.batch, "seq": recipe.seq, "batches": 4})
        if "error" in answer:
            context.add(what, "not run" if answer.get("out_of_time") else "failed", answer["error"])
            continue
        ours, theirs = training.outcome["validation_loss"], answer["loss"]
        apart = abs(theirs - ours) / ours
        context.add(what, "passed" if apart <= SAME_LOSS else "failed",
                    f"held-out loss {ours:.6f} here, {theirs:.6f} there: {apart:.1e} apart (allowed {SAME_LOSS:.0e})",
                    our_loss=ours, their_loss=theirs)


def round_of(context, eager, recipe, sections, number, times, facts):
    """Ours, ours as a program, then theirs; an error's text, and whether it was for want of time."""
    training = context.lego.train(f"steps-{recipes.file_name(recipe)}-{number}", sections, device=context.device)
    if training.error:
        return f"ours: {training.error}", training.out_of_time
    times["ours"].append(training.step_seconds(WARM_UP))
    program = context.lego.train(f"program-{recipes.file_name(recipe)}-{number}", sections, recipes.AS_PROGRAM,
                                 device=context.device)
    if program.error:
        return f"as a program: {program.error}", program.out_of_time
    times["program"].append(program.step_seconds(WARM_UP))
    answer = eager.ask({"kind": "train", "config": recipe.config, "batch": recipe.batch, "seq": recipe.seq, "dtype": recipe.precision,
                        "checkpointing": recipe.checkpointing == "full", "steps": STEPS})
    if "error" in answer:
        return f"PyTorch eager: {answer['error']}", answer.get("out_of_time", False)
    times["theirs"].append(answer["step_seconds"][WARM_UP:])
    facts.update(answer)
    return "", False


def summary(times, predicted):
    """Figures of the rounds that are there. predicted: seconds, or None."""
    ours, program, theirs = (median([t for one in times[side] for t in one]) for side in SIDES)
    figures = {"rounds": min(len(times[side]) for side in SIDES)}
    for side in SIDES:
        figures[side + "_rounds_ms"] = [round(1e3 * median(one), 3) for one in times[side]]
    if ours:
        figures["ours_ms"] = 1e3 * ours
    if program:
        figures["program_ms"] = 1e3 * program
    if ours and predicted:
        figures.update(predicted_ms=1e3 * predicted, predicted_ratio=predicted / ours)
    if ours and theirs:
        figures.update(theirs_ms=1e3 * theirs, ratio=ours / theirs)
    return figures


def tell(figures):
    text = (f"ours {figures['ours_ms']:,.1f} ms, as a program {figures['program_ms']:,.1f} ms, PyTorch eager "
            f"{figures['theirs_ms']:,.1f} ms (ours / eager {figures['ratio']:.3f})")
    return text + (f", predicted {figures['predicted_ms']:,.1f} ms" if "predicted_ms" in figures else "")


def one(context, eager, recipe):
    sections = recipe.sections(context.lego.config(recipes.file_name(recipe), recipe.config), STEPS)
    estimate, why = predict(context, recipe, sections)
    if estimate is None:
        return context.add(recipe.name, "failed", f"no prediction: {why}")
    if not estimate["fits"]:
        return context.add(recipe.name, "skipped", f"does not fit {context.cluster}")
    times, facts = {side: [] for side in SIDES}, {}
    for number in range(ROUNDS):
        # Each of the three costs about as much; a round that cannot end helps nobody.
        if context.left() < 3.5 * context.cost(recipe.name, 5):
            break
        begun = context.left()
        why, late = round_of(context, eager, recipe, sections, number, times, facts)
        context.costs[recipe.name] = (begun - context.left()) / 3
        if why:
            break
    figures = summary(times, None if context.cluster_assumed else estimate["step_time_seconds"])
    if why and not late:
        return context.add(recipe.name, "failed", why, **figures)
    if not figures["rounds"]:
        return context.add(recipe.name, "not run", "the part's time was up", **figures)
    if facts["parameters"] != estimate["parameters"]:
        return context.add(recipe.name, "failed", f"eager has {facts['parameters']:,} parameters, ours {estimate['parameters']:,}")
    figures["theirs_peak_mib"] = facts["peak_bytes"] / 2**20 if facts.get("peak_bytes") else None
    context.add(recipe.name, "passed", tell(figures), **figures)


def part(context):
    eager = Eager(context)
    if not context.has_torch:
        return context.skip_part("no Python torch: there is nothing to compare step times with", state="not run")
    try:
        same_arithmetic(context, eager)
        for recipe in recipes.all_recipes(context.quick):
            one(context, eager, recipe)
    finally:
        eager.close()
    context.note(f"Medians of {STEPS - WARM_UP} steps a round after {WARM_UP} that warm up, in turns. PyTorch "
                 f"{eager.facts.get('torch', '')} eager: fused AdamW, scaled_dot_product_attention, fp32 without TF32, bf16 with "
                 "fp32 masters. Attention's dropout is inside of its kernel there; ours keeps the probabilities, since an "
                 "element's fate must be the same in every layout.")
