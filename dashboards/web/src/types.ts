// What of the service's messages (proto/legoai/v1) the page reads. Fields that know absence are null when unset; times are
// microseconds UTC.

export type JobState =
  | 'submitted' | 'planning' | 'queued' | 'leased' | 'starting' | 'running' | 'restarting' | 'cancelling'
  | 'succeeded' | 'failed' | 'cancelled';

export interface MemoryByCategory {
  sharded_parameter: number;
  unsharded_parameter: number;
  buffer: number;
  sharded_gradient: number;
  unsharded_gradient: number;
  activation: number;
  activation_gradient: number;
  optimizer_state: number;
  input: number;
  all_gather_buffer: number;
  reduce_scatter_buffer: number;
  workspace: number;
  other: number;
}

export interface Breakdown {
  compute_seconds: number;
  exposed_communication_seconds: number;
  bubble_seconds: number;
  launch_seconds: number;
  optimizer_seconds: number;
}

export interface Recipe {
  model: { name: string | null; tokenizer_path?: string | null } | null;
  training: {
    dataset_path: string | null;
    local_batch_size: number | null;
    global_batch_size: number | null;
    seq_len: number | null;
    steps: number | null;
    mixed_precision_param: string | null;
  } | null;
  parallelism: {
    data_parallel_replicate_degree: number | null;
    data_parallel_shard_degree: number | null;
    fsdp_reshard_after_forward: string | null;
    zero_stage?: number | null;
    fsdp_reshard_after_forward_size?: number | null;
    fsdp_prefetch_depth?: number | null;
    sequence_parallel?: boolean | null;
    sequence_parallel_gather_in_backward?: boolean | null;
    context_parallel_degree?: number | null;
    tensor_parallel_degree: number | null;
    pipeline_parallel_degree: number | null;
    pipeline_parallel_schedule: string | null;
    pipeline_parallel_layers_per_stage?: number | null;
    pipeline_parallel_schedule_csv?: string | null;
    pipeline_parallel_microbatch_size: number | null;
  } | null;
  activation_checkpoint: { mode: string | null } | null;
  optimizer?: { lr: number | null } | null;
}

export interface RankedRecipe {
  rank: number;
  recipe: Recipe | null;
  recipe_toml: string;
  step_time_seconds: number;
  tokens_per_second_per_gpu: number;
  mfu: number;
  peak_memory_bytes: number;
  headroom_bytes: number;
  memory: MemoryByCategory | null;
  breakdown: Breakdown | null;
  estimated: boolean;
}

export interface RejectedRecipe {
  recipe: Recipe | null;
  rule: string;
  reason: string;
  peak_memory_bytes: number | null;
  is_bound: boolean;
}

export interface PlanResult {
  model: string;
  cluster: string;
  global_batch: number;
  seq_len: number;
  space: number;
  pruned: Record<string, number>;
  bounded_out: number;
  captured: number;
  captured_unfit: number;
  failed: number;
  not_reached: number;
  seconds: number;
  ranked: RankedRecipe[];
  rejected: RejectedRecipe[];
  explanation: string;
}

export interface PlanRequest {
  model: { name: string; config_json?: string };
  cluster: Record<string, unknown>;
  global_batch: number;
  seq_len: number;
  constraints: string[];
  budget_seconds: number;
  top: number;
}

export interface RpcStatus {
  code: number;
  message: string;
}

export interface JobProgress {
  phase: string;
  step: number;
  steps: number;
  loss: number | null;
  validation_loss: number | null;
  tokens_per_second: number | null;
  step_seconds: number | null;
  peak_memory_bytes: number | null;
  update_time_us: number;
  waits: string;
}

export interface JobSpec {
  display_name: string;
  model: { name: string; config_json?: string } | null;
  recipe: Recipe | null;
  dataset: { uri: string; sha256?: string; bytes?: number } | null;
  resources: { slots: number | null; min_slots: number | null; pool: string | null; device_type: string | null } | null;
  planning: { constraints: string[] } | null;
  policy: { priority: number | null; max_restarts: number | null } | null;
}

export interface Job {
  name: string;
  spec: JobSpec | null;
  state: JobState;
  reason: string;
  version: number;
  epoch: number;
  attempts: number;
  restarts: number;
  create_time_us: number;
  update_time_us: number;
  start_time_us: number | null;
  end_time_us: number | null;
  retry_of: string;
  starts_from: Checkpoint | null;
  steps_back: number;
  stop?: { save: boolean; reason: string } | null;  // of its trainers, under way
  chosen: RankedRecipe | null;
  world_size: number | null;
  progress: JobProgress | null;
  committed_step: number | null;
  outcome: { error: RpcStatus | null } | null;
  queue_position: number | null;
  hf_directory: string | null;
  unigram_entropy: number | null;
}

export interface Transition {
  version: number;
  from: JobState | null;
  to: JobState;
  reason: string;
  epoch: number;
  time_us: number;
}

export interface PlanningProgress {
  space: number;
  to_capture: number;
  captured: number;
  best_step_seconds: number | null;
  elapsed_seconds: number;
  best: RankedRecipe[]; // of those that fit so far, at most ten, the best first; without recipe_toml
}

export interface WatchJobResponse {
  job: Job;
  transitions: Transition[];
  planning: PlanningProgress | null;
}

export interface Attempt {
  name: string;
  attempt: number;
  epoch: number;
  recipe: Recipe | null;
  world_size: number;
  placements: { worker: string; slots: number; first_rank: number }[];
  resume_step: number | null;
  start_time_us: number;
  end_time_us: number | null;
  state: string;
  error: RpcStatus | null;
  last_step: number | null;
  predicted_step_seconds: number | null;
  predicted_peak_memory_bytes: number | null;
  predicted_memory: MemoryByCategory | null;
  measured_step_seconds: number | null;
  measured_peak_memory_bytes: number | null;
}

export interface Checkpoint {
  name: string;
  step: number;
  epoch: number;
  attempt: number;
  directory: string;
  time_us: number;
  damage: string;
}

export interface LogLine {
  sequence: number;
  attempt: number;
  epoch: number;
  rank: number | null;
  level: string;
  text: string;
  time_us: number;
  worker: string;
}

export interface CollectiveTime {
  collective: string;
  group: string;
  count: number;
  seconds: number;
  exposed_seconds: number;
}

// Means of the steps since the report before.
export interface RankMetrics {
  rank: number;
  step_seconds: number;
  data_seconds: number;
  forward_seconds: number;
  backward_seconds: number;
  optimizer_seconds: number;
  exposed_communication_seconds: number; // of all these
  collectives: CollectiveTime[];
  peak_memory_bytes: number | null;
}

export interface StepTraceInfo {
  name: string;
  attempt: number;
  step: number;
  rank: number;
  bytes: number;
  time_us: number;
}

export interface StepMetrics {
  attempt: number;
  step: number;
  time_unix_seconds: number;
  loss: number | null;
  validation_loss: number | null;
  grad_norm: number | null;
  learning_rate: number;
  step_seconds: number;
  data_seconds: number;
  tokens_per_second: number;
  mfu: number | null;
  hfu: number | null;
  peak_memory_bytes: number | null;
  exposed_communication_share: number | null; // of the step, the mean of all ranks
  ranks: RankMetrics[]; // of a curve's points the first rank's alone
}

export interface FlightEntry {
  process_group: string;
  collective_seq_id: number;
  profiling_name: string;
  state: string;
  time_created_ns: number;
  time_completed_ns: number;
}

export interface FlightFinding {
  process_group: string;
  sequence: number;
  profiling_name: string;
  verdict: string;
  missing_ranks: number[];
  culprits: number[];
  text: string;
}

export interface FlightRecord {
  attempt: number;
  reason: string;
  time_us: number;
  analysis: {
    verdict: string;
    culprits: number[];
    text: string;
    findings: FlightFinding[];
    ranks_without_dump: number[];
    matched: number;
  } | null;
  dumps: { rank: number; world_size: number; reason: string; entries: FlightEntry[] }[];
}

export interface WorkerUse {
  time_us: number;
  processor_share: number | null;
  memory_bytes: number;
  gpus: {
    index: number;
    utilization: number | null;
    memory_bytes: number;
    temperature_celsius: number | null;
    power_watts: number | null;
    slowdowns?: string[]; // why its clocks are lowered
    uncorrected_ecc_errors?: number | null;
  }[];
}

export interface CheckResult {
  kind: string; // "disk", "device", "all_gather"
  slots: number[];
  passed: boolean;
  text: string; // why it has not passed
  seconds: number;
  write_bytes_per_second: number | null;
  read_bytes_per_second: number | null;
  free_bytes: number | null;
  flops_per_second: number | null;
  to_device_bytes_per_second: number | null;
  from_device_bytes_per_second: number | null;
  received_bytes_per_second: number | null;
}

export interface MachineCheck {
  number: number;
  start_time_us: number;
  seconds: number;
  results: CheckResult[];
}

export interface WorkerHealth {
  checking: boolean;
  slot_faults: { slot: number; cause: string; reason: string; time_us: number }[];
  fault: string; // of the whole worker
  check: MachineCheck | null;
}

export interface Worker {
  name: string;
  host: string;
  pool: string;
  device: {
    type: string;
    kind: string | null;
    memory_bytes: number;
    memory_bandwidth_bytes_per_second: number;
    peak_flops: { dtype: string | null; flops_per_second: number }[];
    measured_while_busy?: number | null; // share of the processors that others took meanwhile
  } | null;
  slots: number;
  slot_devices?: { index: number; uuid: string; name: string; memory_bytes: number }[];  // by slot; empty: processors
  host_memory_bytes: number;
  host_cores: number;
  labels: Record<string, string>;
  build_version: string;
  state: 'ready' | 'draining' | 'lost' | null;
  connected: boolean;
  used: { job: string; epoch: number; slots: number }[];
  first_seen_time_us: number;
  last_seen_time_us: number;
  dropped_metrics: number;
  use?: WorkerUse | null; // as last reported
  health?: WorkerHealth | null;
}

export interface ServerInfo {
  build_version: string;
  start_time_us: number;
  store: string;
  schema_version: number;
  leads: boolean;
  address: string;
  leader?: { address: string; holder: string; term: number } | null; // of several servers over one store
}
