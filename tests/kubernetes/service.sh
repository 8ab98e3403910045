# Sourced by tests/kubernetes/run, within its namespaces: starts the programs of the pods that the API server holds as a kubelet
# would, with the pods' arguments, variables, addresses and volumes, and asks the probes that the pods declare by the kubelet's
# own code. The programs are those of the images of $images where that is a folder (then as the images' user, over the images'
# root file systems, which can only be read), or else those of bazel-bin, with the volumes below $volumes_root.
volumes_root=$state/volumes
service_pids=()

pod_json() { in_legoai get pod "$1" -o json; }
pod_says() { pod_json "$1" | "$built/cluster" pod "$2"; }
address_of() { in_legoai get pod "$1" -o jsonpath='{.status.podIP}'; }
mounts_of() { in_legoai get pod "$1" -o jsonpath='{range .spec.containers[0].volumeMounts[*]}{.mountPath}{"\n"}{end}'; }

gather_programs() {
  local program
  mkdir -p "$volumes_root/bin" "$volumes_root/usr/share/legoai"
  for program in server/main/legoai-server worker/agent/legoai-agent worker/train/legoai-trainer simulator/estimate/lego-sim; do
    cp -L "bazel-bin/$program" "$volumes_root/bin/" || return 1  # they find each other beside themselves
  done
  ln -sfn "$(readlink -f dashboards/web/dist)" "$volumes_root/usr/share/legoai/web"
}

# Names are looked up in a file of our own: there is no cluster DNS.
names() {
  printf '127.0.0.1 localhost\n%s legoai-server\n' "$(address_of legoai-server-0)" >"$state/hosts" &&
    mount --bind "$state/hosts" /etc/hosts
}

in_place() {  # in_place: a path of the pod as it is on this machine
  if [ -n "$images" ]; then cat; else sed -E "s#(^|=)/(var/lib/legoai|shared|tmp|usr/share/legoai)#\1$volumes_root/\2#"; fi
}

in_image() {  # in_image IMAGE VOLUMES COMMAND...: in a mount namespace of its own; keeps the process's number
  local image=$images/$1 volumes=$2 root device
  shift 2
  root=$(readlink -f "$image")
  touch "$root/etc/hosts"
  exec unshare --mount --propagation private bash -c '
    root=$1 user=$2 from=$3 volumes=$4 hosts=$5; shift 5
    set -e
    mount --bind "$root" "$root"
    mount --bind "$hosts" "$root/etc/hosts"
    mount -t proc proc "$root/proc"
    mount -t tmpfs tmpfs "$root/dev"
    for device in null zero random urandom; do touch "$root/dev/$device"; mount --bind "/dev/$device" "$root/dev/$device"; done
    mkdir -m 1777 "$root/dev/shm"; mount -t tmpfs tmpfs "$root/dev/shm"
    for volume in $volumes; do mkdir -p "$root$volume"; mount --bind "$from$volume" "$root$volume"; done
    mount -o remount,bind,ro "$root"
    exec chroot --userspec="$user" --groups="${user#*:}" "$root" "$@"
  ' in_image "$root" "$(<"$image.user")" "$volumes_root" "$volumes" "$state/hosts" "$@"
}

start_pod() {  # start_pod POD IMAGE
  local pod=$1 image=$2 volumes arguments environment entrypoint volume
  ip address add "$(address_of "$pod")/32" dev lo || return 1
  volumes=$(mounts_of "$pod") && [ -n "$volumes" ] || return 1
  for volume in $volumes; do mkdir -p "$volumes_root$volume" && chmod 1777 "$volumes_root$volume"; done
  mapfile -t arguments < <(pod_says "$pod" arguments | in_place)
  mapfile -t environment < <(pod_says "$pod" environment | in_place)
  [ ${#arguments[@]} -gt 0 ] || return 1
  if [ -n "$images" ]; then
    entrypoint=$(<"$images/$image.entrypoint")
    (in_image "$image" "$volumes" /usr/bin/env -i "${environment[@]}" "$entrypoint" "${arguments[@]}") >"$state/$pod.log" 2>&1 </dev/null &
  else
    LD_LIBRARY_PATH=$PWD/.deps/torch/lib:$PWD/.deps/nvidia/cu13/lib env "${environment[@]}" \
      "$volumes_root/bin/legoai-$image" "${arguments[@]}" >"$state/$pod.log" 2>&1 </dev/null &
  fi
  service_pids+=($!)
}

changed_probes() { pod_json legoai-server-0 | sed "$1" | "$built/cluster" pod probes; }  # changed_probes SED

lego() { "$PWD/bazel-bin/server/cli/lego" "$@" --server "$(address_of legoai-server-0):7420"; }
agent_is_connected() { lego workers legoai-agent-0 -o json | grep -q '"connected": true'; }

# A few steps of the example's model on this repository's own documents.
train() {
  local job
  mkdir -p "$volumes_root/shared/data"
  cat docs/*.md >"$volumes_root/shared/data/corpus.txt"
  sed -e 's#^dataset_path = .*#dataset_path = "'"$(in_place <<<"/shared/data/corpus.txt")"'"#' -e 's/^steps = 400/steps = 10/' \
    -e 's/^interval = 100/interval = 5/' -e 's/^warmup_steps = 20/warmup_steps = 2/' -e 's/^global_batch_size = 16/global_batch_size = 4/' \
    -e 's/^seq_len = 256/seq_len = 64/' -e "s#^name = \"examples#name = \"$PWD/examples#" examples/job.toml >"$state/job.toml"
  job=$(lego submit "$state/job.toml" -o json | sed -n 's/^ *"name": "\(projects[^"]*\)".*/\1/p' | head -n 1)
  [ -n "$job" ] || return 1
  lego wait "$job" || { tail -n 5 "$state"/legoai-*.log; return 1; }
  [ "$(find "$volumes_root/shared/runs" -name manifest.pb | wc -l)" -ge 2 ] || { echo "no checkpoints on the shared volume"; return 1; }
}

ends() {  # ends POD INDEX: asked to, within what the pod grants it, and without an error
  local grace deadline
  grace=$(in_legoai get pod "$1" -o jsonpath='{.spec.terminationGracePeriodSeconds}') && [ -n "$grace" ] || return 1
  kill -TERM "${service_pids[$2]}" || { tail -n 5 "$state/$1.log"; return 1; }
  deadline=$((SECONDS + grace))
  while kill -0 "${service_pids[$2]}" 2>/dev/null; do
    [ $SECONDS -lt $deadline ] || { echo "runs on after $grace s"; return 1; }
    sleep 0.1
  done
  wait "${service_pids[$2]}" || { tail -n 5 "$state/$1.log"; return 1; }
}

service_checks() {  # service_checks NAME
  local from="bazel-bin"
  [ -z "$images" ] || from="the images"
  [ -n "$images" ] || check "$1: programs of bazel-bin" gather_programs
  check "$1: names of the cluster" names
  check "$1: the server of $from starts as its pod says" start_pod legoai-server-0 server
  check "$1: each probe of the pod is answered, at the pod's address" within 120 pod_says legoai-server-0 probes
  check "$1: a probe of another path is not" refused 'statuscode: 404' changed_probes s#/readyz#/v1/elsewhere#
  check "$1: a probe without the header is not" refused 'statuscode: 4' changed_probes 's/"value": "localhost"/"value": "elsewhere"/'
  check "$1: a probe of another port is not" refused 'connection refused' changed_probes 's/"port": 7420/"port": 7422/'
  check "$1: the agent of $from starts as its pod says" start_pod legoai-agent-0 agent
  check "$1: the agent finds the server by its service's name" within 120 agent_is_connected
  check "$1: a job is trained, its checkpoints lie on the shared volume" train
  check "$1: the agent ends when it is asked to" ends legoai-agent-0 1
  check "$1: the server ends when it is asked to" ends legoai-server-0 0
}
