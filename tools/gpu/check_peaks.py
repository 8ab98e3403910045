"""Peak memory of recipes: the allocator's (requested bytes) beside what `lego simulate` predicts. More than one percent apart
is a failure of the line.

The allocator also gives cuBLAS its workspaces, which hold no tensor and which the prediction leaves to the device's reserve: the
difference in MiB tells them from an error that grows with the recipe."""
import check_recipes as recipes

STEPS, WARM_UP = 4, 1
MOST_APART = 0.01
COLUMNS = [("name", "recipe", ""), ("state", "outcome", ""), ("measured_mib", "allocator's peak, MiB", ",.1f"),
           ("predicted_mib", "predicted, MiB", ",.1f"), ("difference_mib", "predicted - measured, MiB", "+,.1f"),
           ("error_percent", "error, %", "+.3f"), ("step_ms", "step, ms", ",.1f")]


def judge(measured, predicted):
    """(state, text, figures) of bytes."""
    if measured <= 0:
        return "failed", "the allocator's peak was not told", {}
    error = predicted / measured - 1
    figures = {"measured_bytes": measured, "predicted_bytes": predicted, "measured_mib": measured / 2**20,
               "predicted_mib": predicted / 2**20, "difference_mib": (predicted - measured) / 2**20, "error_percent": 100 * error}
    text = f"{measured / 2**20:,.1f} MiB measured, {predicted / 2**20:,.1f} MiB predicted ({100 * error:+.3f} %)"
    return ("passed" if abs(error) <= MOST_APART else "failed"), text, figures


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    if not ordered:
        return None
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def predict(context, recipe, sections):
    """The estimate, made once for all parts; None and the reason."""
    if recipe.name not in context.estimates:
        context.estimates[recipe.name] = context.lego.simulate("predict-" + recipes.file_name(recipe), sections,
                                                               cluster=context.cluster)
    return context.estimates[recipe.name]


def one(context, recipe):
    sections = recipe.sections(context.lego.config(recipes.file_name(recipe), recipe.config), STEPS)
    estimate, why = predict(context, recipe, sections)
    if estimate is None:
        return context.add(recipe.name, "failed", f"no prediction: {why}")
    stage = estimate["stages"][0]
    if not estimate["fits"]:
        return context.add(recipe.name, "skipped", f"does not fit {context.cluster}", predicted_mib=stage["peak_requested_bytes"] / 2**20)
    if context.left() < context.cost(recipe.name, 5):
        return context.add(recipe.name, "not run", "the part's time was up")
    training = context.lego.train("peak-" + recipes.file_name(recipe), sections, device=context.device)
    if training.error:
        return context.add(recipe.name, "not run" if training.out_of_time else "failed", training.error)
    context.costs[recipe.name] = training.seconds
    state, text, figures = judge(max(training.outcome["peak_memory_bytes"], default=0), stage["peak_requested_bytes"])
    if state == "failed" and context.device == "cpu" and recipe.precision != "float32":
        state, text = "skipped", f"{text}: not judged on a CPU, whose kernels for 16 bits take other buffers from model to model"
    step = median(training.step_seconds(WARM_UP))
    context.add(recipe.name, state, text, predicted_step_ms=1e3 * estimate["step_time_seconds"], step_ms=1e3 * step if step else None,
                call_seconds=round(training.seconds, 1), parameters=estimate["parameters"], peak_at=stage["peak_at"], **figures)


def part(context):
    chosen = recipes.all_recipes(context.quick, more=True)
    for recipe in chosen:
        one(context, recipe)
    context.note(f"{STEPS} steps each; batch and length: " +
                 "; ".join(f"{r.name} {r.batch} x {r.seq}" for r in chosen) + ".")
    if context.cluster_assumed:
        context.note(f"The card is none of the catalog: predicted as for {context.cluster}.")
