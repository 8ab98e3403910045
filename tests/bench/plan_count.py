"""How many simulations a plan needs: the best recipe among the first N in the order of the closed-form estimate, for growing N, of
jobs of which everything that may fit is simulated. JOB names (8b, 70b ...) choose some of the jobs."""
import json
import sys

from report import lego, report

JOBS = {"8b": ("llama3-8b", "h100-sxm-80:8x1", 64), "8b-128": ("llama3-8b", "h100-sxm-80:8x16", 256),
        "70b-64": ("llama3-70b", "h100-sxm-80:8x8", 128), "70b-256": ("llama3-70b", "h100-sxm-80:8x32", 256),
        "405b-512": ("llama3-405b", "h100-sxm-80:8x64", 512), "405b-8192": ("llama3-405b", "h100-sxm-80:8x1024", 4096)}
COUNTS = [1, 16, 32, 64, 128]


def name_of(recipe):
    return json.dumps(recipe, sort_keys=True)


def plan(model, cluster, batch, seconds):
    code, answer, error = lego("plan", "--model", model, "--cluster", cluster, "--global-batch", str(batch), "--seq", "8192",
                               "--top", "1000000", "--rejected", "all", "--budget-seconds", str(seconds))
    if answer is None:
        sys.exit(f"{model} on {cluster}: exit code {code}: {error}")
    return answer


def row_of(name):
    model, cluster, batch = JOBS[name]
    everything = plan(model, cluster, batch, 0)
    fitting = {name_of(ranked["recipe"]): ranked["step_time_seconds"] for ranked in everything["ranked"]}
    # Cut short at once, the ranking is the order of the estimate, but for what was simulated: the first ones, in any order.
    short = plan(model, cluster, batch, 1e-9)
    estimated = [name_of(ranked["recipe"]) for ranked in short["ranked"] if ranked["estimated"]]
    simulated = [recipe for recipe in fitting if recipe not in set(estimated)]
    missing = everything["captured"] + everything["failed"] - len(estimated) - len(simulated)  # of the first ones, do not fit
    order = [None] * missing + simulated + estimated
    best = min(fitting.values())
    row = {"job": name, "may fit": len(order), "fit": len(fitting), "best": best}
    first = next(place for place, recipe in enumerate(order, 1) if fitting.get(recipe) == best)
    row["place of the best"] = first
    for count in COUNTS:
        known = [fitting[recipe] for recipe in order[:count] if recipe in fitting]
        row[f"first {count}"] = f"+{100 * (min(known) / best - 1):.2f} %" if known else "none fits"
    return {**row, "seconds of all": everything["seconds"]}


names = [argument for argument in sys.argv[1:] if not argument.startswith("--")] or list(JOBS)
report([row_of(name) for name in names])
