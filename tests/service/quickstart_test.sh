#!/usr/bin/env bash
# ./quickstart as it stands, over the programs that are built here: what installs and builds is replaced, as a test may do
# neither, and so is the example, by a small job. Its ports are those of a network of the test's own.
set -euo pipefail
root=$TEST_TMPDIR/root
service=$root/runs/service
export HOME=$TEST_TMPDIR/home PATH=$root/bin:$PATH
mkdir -p "$HOME" "$root"/{bin,tools,examples,runs,dashboards/web/dist}
ln -s "$PWD" "$root/bazel-bin"
cp -L quickstart lego "$root"
echo '<title>LegoAI</title>' >"$root/dashboards/web/dist/index.html"
for program in bin/bazel tools/setup tools/build_web; do printf '#!/bin/sh\nexit 0\n' >"$root/$program"; done
printf '#!/bin/sh\n[ "$1" = flags ] || exec cat\n' >"$root/tools/bazel_progress"
printf '#!/bin/sh\necho runs/text.txt\n' >"$root/examples/make_text.sh"
chmod +x "$root"/bin/* "$root"/tools/* "$root"/examples/*.sh
cd "$root"
for i in $(seq 400); do echo "the quick brown fox $((i * i)) jumps over the lazy dog"; done >runs/text.txt
cat >examples/config.json <<'J'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256, "hidden_size": 32, "intermediate_size": 64,
 "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "tie_word_embeddings": false, "hidden_act": "silu"}
J
write_job() {  # write_job TEXT
  printf '%s\n' '[model]' 'name = "examples/config.json"' 'tokenizer_path = "byte"' '[training]' "dataset_path = \"$1\"" \
    'global_batch_size = 4' 'seq_len = 32' 'steps = 40' '[planning]' 'budget_seconds = 60' \
    'constraints = ["training.mixed_precision_param=float32", "activation_checkpoint.mode=none", "parallelism.tensor_parallel_degree=1"]' \
    >examples/job.toml
}

processes() {  # those of the service that run
  local file pid
  for file in "$service"/*.json; do
    pid=$(sed -n 's/^ *"pid": \([0-9]*\).*/\1/p' "$file" 2>/dev/null) && [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null && echo "$pid"
  done
  true
}
trap 'for pid in $(processes); do kill -KILL "$pid"; done' EXIT
failed() {
  printf 'FAILED: %s\n' "$1"
  cat out
  tail -n 5 "$service"/*.log
  exit 1
}
expect() {  # expect CODE ARGUMENT...: what ./quickstart says is left in ./out
  local want=$1 code=0
  shift
  ./quickstart "$@" >out 2>&1 || code=$?
  [ "$code" -eq "$want" ] || failed "./quickstart $* ended with $code, and not $want"
}
says() { grep -qF -- "$1" out || failed "it does not say: $1"; }

expect 1 --nonsense
says '--nonsense is none of --once, --fresh, --stop'
expect 0 --stop
says 'nothing runs'

write_job runs/text.txt
expect 0 --once
for part in 'measuring this machine' 'the page: http://127.0.0.1:7421/' 'The fastest recipe that fits is' \
  'succeeded at step 40/40' "the data is in $service"; do
  says "$part"
done
[ -z "$(processes)" ] || failed "--once left processes: $(processes)"

write_job runs/nothing.txt
expect 1 --once --fresh
says 'runs/nothing.txt'
says ' failed: '
[ -z "$(processes)" ] || failed "--once left processes: $(processes)"

# The request of before is a job that has failed: only --fresh makes another one.
write_job runs/text.txt
expect 0 --fresh
says 'succeeded at step 40/40'
says './quickstart --stop ends it'
[ "$(processes | wc -l)" -eq 2 ] || failed "the dashboard is to go on: $(processes)"
[ "$(./lego list -o json | grep -c '"state": "succeeded"')" -eq 2 ] || failed "the first job is not there any more"
expect 0
says 'succeeded at step 40/40'
[ "$(./lego list -o json | grep -c '"state": "succeeded"')" -eq 2 ] || failed "a repeated call submitted again"
expect 0 --stop
says "the data is in $service"
[ -z "$(processes)" ] || failed "--stop left processes: $(processes)"
