"""One step of some recipes traced on the device beside its prediction, as `lego compare-trace` tells them: traces.txt, in which
every operator's measured time stands beside the least that the device's peaks allow. Nothing is asserted about time."""
import os

import check_recipes as recipes

STEPS, TRACED = 6, 5
ROWS = 40
NAMES = ("gpt2-medium bf16 no dropout", "llama-small bf16", "gpt2 bf16", "llama3.2-1b bf16")


def predicted_trace(context, recipe, sections):
    """The file, or nothing and why."""
    path, _ = context.lego.recipe("trace-predicted-" + recipes.file_name(recipe), sections)
    trace = os.path.join(context.lego.folder, recipes.file_name(recipe) + ".json.gz")
    result = context.run("lego simulate --trace", [context.programs["lego"], "simulate", f"--cluster={context.cluster}",
                                                   f"--recipe={path}", f"--trace={trace}"], min(60, context.left()))
    return (trace, "") if result.code == 0 else ("", result.killed or result.last_line())


def measured_trace(context, name, recipe, sections):
    training = context.lego.train(name + "-" + recipes.file_name(recipe), sections, {"metrics": {"trace_steps": [TRACED]}},
                                  device=context.device)
    trace = os.path.join(training.directory, "traces", f"step-{TRACED}-rank-0.json.gz")
    if training.error or not os.path.exists(trace):
        return "", training.error or f"there is no {os.path.basename(trace)}", training.out_of_time
    return trace, "", False


def one(context, file, recipe):
    sections = recipe.sections(context.lego.config(recipes.file_name(recipe), recipe.config), STEPS)
    predicted, why = predicted_trace(context, recipe, sections)
    if not predicted:
        return context.add(recipe.name, "failed", f"no prediction: {why}")
    measured, why, late = measured_trace(context, "trace", recipe, sections)
    if not measured:
        return context.add(recipe.name, "not run" if late else "failed", why)
    result = context.run("lego compare-trace", [context.programs["lego"], "compare-trace", predicted, measured, f"--rows={ROWS}"],
                         min(60, context.left()))
    file.write(f"=== {recipe.name}\n{result.stdout}\n")
    file.flush()
    lines = [line for line in result.stdout.splitlines() if line.strip()]
    context.add(recipe.name, "passed" if result.code == 0 and lines else "failed", lines[0] if lines else result.last_line())


def part(context):
    chosen = [recipe for recipe in recipes.RECIPES if recipe.name in NAMES]
    with open(os.path.join(context.out, "traces.txt"), "w", encoding="utf-8") as file:
        for recipe in sorted(chosen, key=lambda recipe: NAMES.index(recipe.name)):
            if context.left() < 8:
                context.add(recipe.name, "not run", "the part's time was up")
                continue
            one(context, file, recipes.tiny(recipe) if context.quick else recipe)
    context.note("traces.txt has each in full.")
