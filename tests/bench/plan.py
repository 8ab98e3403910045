"""Planning without a GPU: size of the space, where its recipes end up, the winner, seconds."""
from report import lego, report

JOBS = [("llama3-8b", "h100-sxm-80:8x1", 64), ("llama3-8b", "h100-sxm-80:8x16", 256), ("llama3-70b", "h100-sxm-80:8x32", 256),
        ("llama3-405b", "h100-sxm-80:8x64", 512)]

rows = []
for model, cluster, batch in JOBS:
    code, plan, error = lego("plan", "--model", model, "--cluster", cluster, "--global-batch", str(batch), "--seq", "8192",
                             "--top", "1")
    row = {"model": model, "cluster": cluster, "global_batch": batch, "exit": code}
    if plan is None:
        rows.append({**row, "winner": error})
        continue
    row.update(space=plan["space"], pruned=sum(plan["pruned"].values()),
               **{key: plan[key] for key in ("bounded_out", "captured", "captured_unfit", "failed", "not_reached")})
    if plan["ranked"]:
        best = plan["ranked"][0]
        parallelism, training = best["recipe"]["parallelism"], best["recipe"]["training"]
        row.update(replicate=parallelism["data_parallel_replicate_degree"], shard=parallelism["data_parallel_shard_degree"],
                   tp=parallelism["tensor_parallel_degree"], pp=parallelism["pipeline_parallel_degree"],
                   local_batch=training["local_batch_size"], checkpointing=best["recipe"]["activation_checkpoint"]["mode"],
                   step_seconds=best["step_time_seconds"], mfu=best["mfu"])
    rows.append({**row, "seconds": plan["seconds"]})
report(rows)
