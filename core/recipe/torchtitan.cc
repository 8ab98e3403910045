#include "core/recipe/torchtitan.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "proto/errors.h"

namespace legoai::parallel {
namespace {

constexpr char kOwnTests[] = "remove it: it serves TorchTitan's own tests";
constexpr char kNothingCompiled[] = "remove it: compile.enable trains the whole step as one program, autograd's part too";
constexpr char kExpert[] = "remove it: expert parallel is not supported yet";
constexpr char kFloat8[] = "remove the section: float8 is not supported yet, training.mixed_precision_param says what computes";
constexpr char kWholeCheckpoints[] = "remove it: checkpoints are always whole; checkpoint.last_save_in_hf leaves the model alone";
constexpr char kHeldOut[] = "remove it: the end of the text is held out, training.validation_fraction of it";

constexpr TorchTitanKey kKeys[] = {
    {"job.config_file", "remove it: the file is a word of the command"},
    {"job.custom_config_module", "remove it: there are no modules of one's own"},
    {"job.print_args", "remove it: recipe.toml in the run directory has every key"},
    {"job.save_config_file", "remove it: recipe.toml in the run directory has every key"},
    {"job.use_for_integration_test", kOwnTests},
    {"model.flavor", "name family and size together: model.name = \"llama3-8b\" (`lego models`), or a config.json"},
    {"model.hf_assets_path", "is model.tokenizer_path here: \"byte\", a tiktoken file or a tokenizer.json"},
    {"model.converters", "remove it: converters, float8 among them, are not supported yet"},
    {"model.print_after_conversion", "remove it: there are no converters"},
    {"training.batch_size", "is training.local_batch_size here"},
    {"training.dataset", "give a text file instead: training.dataset_path"},
    {"training.compile", "is compile.enable here"},
    {"training.deterministic", "remove it: training.seed alone decides initialization, order of the data and dropout"},
    {"training.enable_cpu_offload", "remove it: nothing is moved to the host's memory"},
    {"training.gc_freq", "remove it: there is no Python in the training"},
    {"training.gc_debug", "remove it: there is no Python in the training"},
    {"optimizer.implementation", "remove it: Adam and AdamW are always the fused ones"},
    {"optimizer.early_step_in_backward", "remove it: the optimizer steps after the whole backward"},
    {"lr_scheduler.lr_min", "is lr_scheduler.min_lr_factor here"},
    {"lr_scheduler.total_steps", "remove it: the rate decays until training.steps"},
    {"parallelism.enable_compiled_autograd", kNothingCompiled},
    {"parallelism.pipeline_parallel_split_points",
     "list the modules of each part instead: parallelism.module_fqns_per_model_part = [[\"tok_embeddings\", \"layers.0\"], ...]"},
    {"parallelism.expert_tensor_parallel_degree", kExpert},
    {"parallelism.expert_parallel_comm_backend", kExpert},
    {"activation_checkpoint.early_stop", "remove it: backward repeats the forward of whole blocks"},
    {"activation_checkpoint.preserve_rng_state", "remove it: dropout is always repeated as it was"},
    {"checkpoint.enable", "is checkpoint.enable_checkpoint here"},
    {"checkpoint.async_mode", "remove it: checkpoints are written by the ranks between two steps"},
    {"checkpoint.initial_load_path", "is model.initial_load_path here: a folder with safetensors"},
    {"checkpoint.initial_load_in_hf", "remove it: model.initial_load_path always is a folder with safetensors"},
    {"checkpoint.initial_load_model_only", "remove it: model.initial_load_path gives the weights alone"},
    {"checkpoint.model_weights_only", kWholeCheckpoints},
    {"checkpoint.last_save_model_only", kWholeCheckpoints},
    {"checkpoint.export_dtype", "remove it: the model is exported in float32"},
    {"checkpoint.load_step", "remove it: a run goes on from its latest checkpoint"},
    {"checkpoint.exclude_from_loading", "remove it: a checkpoint is loaded whole"},
    {"checkpoint.enable_first_step_checkpoint", "remove it: the first checkpoint comes after checkpoint.interval steps"},
    {"checkpoint.create_seed_checkpoint", "remove it: a seed gives the same weights for every layout"},
    {"comm.save_traces_folder", "remove it: flight records are in flight/ of job.dump_folder"},
    {"comm.save_traces_file_prefix", "remove it: flight records are called flight/rank-R"},
    {"metrics.disable_color_printing", "remove it: NO_COLOR=1 in the environment does that"},
    {"metrics.save_tb_folder", "remove it: event files are in tensorboard/ of job.dump_folder"},
    {"metrics.save_for_all_ranks", "remove it: metrics.jsonl has a row for each rank"},
    {"metrics.enable_wandb", "remove it: metrics.enable_tensorboard writes event files, metrics.jsonl is always there"},
    {"validation.enabled", "is validation.enable here"},
    {"validation.dataset", kHeldOut},
    {"validation.dataset_path", kHeldOut},
    {"validation.local_batch_size", "remove it: evaluation has training.local_batch_size"},
    {"validation.seq_len", "remove it: evaluation has training.seq_len"},
    {"profiling", "remove the section: `lego simulate --trace FILE` shows a step, and metrics.trace_steps traces steps of a run"},
    {"compile.components", "remove it: the whole step is one program, model and loss"},
    {"compile.backend", "remove it: passes of core/trace/passes rewrite the step"},
    {"debug", "remove the section: the seed is training.seed"},
    {"float8", kFloat8},
    {"mx", kFloat8},
    {"quantize", kFloat8},
    {"memory_estimation", "remove the section: `lego simulate` tells the memory of a recipe"},
    {"fault_tolerance", "remove the section: a job goes on from its last checkpoint (`lego submit`, policy.max_restarts)"},
    {"experimental", "remove the section: there are no modules of one's own"},
};

}  // namespace

absl::Span<const TorchTitanKey> TorchTitanKeys() { return kKeys; }

absl::Status KnowingTorchTitan(const absl::Status& status) {
  const auto violation = GetFieldViolation(status);
  if (!violation) return status;
  const auto* const known =
      std::find_if(std::begin(kKeys), std::end(kKeys), [&](const auto& key) { return key.key == violation->field(); });
  if (known == std::end(kKeys)) return status;
  const bool section = violation->field().find('.') == std::string::npos;
  return FieldError(violation->field(), section ? "" : violation->value(), known->remedy, status.code());
}

}  // namespace legoai::parallel
