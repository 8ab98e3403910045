#include "worker/generate/source.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/checkpoint/chunks.h"
#include "core/checkpoint/directory.h"
#include "core/checkpoint/manifest.h"
#include "core/mesh/shard_spec.h"
#include "core/model/hf_config.h"
#include "core/process/run_directory.h"
#include "proto/errors.h"
#include "proto/json/json.h"
#include "proto/read_file.h"
#include "proto/status.h"

namespace legoai::generate {
namespace {

namespace fs = std::filesystem;

constexpr char kPath[] = "RUN|FOLDER";

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool IsFile(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// Any where `step` is not said.
absl::StatusOr<bool> HasCheckpoint(const std::string& run, std::optional<int64_t> step) {
  ASSIGN_OR_RETURN(const std::string root, launch::CheckpointsOfRun(run));
  ASSIGN_OR_RETURN(const auto steps, checkpoint::ListCheckpoints(root));
  return step ? std::find(steps.begin(), steps.end(), *step) != steps.end() : !steps.empty();
}

bool HasExport(const std::string& run) { return IsFile(launch::HuggingFacePath(run) + "/config.json"); }

bool IsRun(const std::string& path) { return HasExport(path) || IsFolder(launch::CheckpointsPath(path)); }

// Of RUNS/JOB the epoch-E with the highest E that has this step, or, where none is said, any model: a later one may have written
// no checkpoint yet, or cannot be looked at (`unseen` says why). If none has, the last one, or that reason. Any other path is what
// it is.
absl::StatusOr<std::string> RunOf(const std::string& path, std::optional<int64_t> step, absl::Status* unseen) {
  if (IsRun(path)) return path;
  std::string newest = path;
  std::pair<bool, int64_t> newest_epoch = {false, -1};  // whether it has the step, its number
  int64_t unseen_epoch = -1;
  std::error_code error;
  for (fs::directory_iterator at(path, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    absl::string_view number = name;
    int64_t epoch = -1;
    const std::string run = at->path().string();
    if (!absl::ConsumePrefix(&number, "epoch-") || !absl::SimpleAtoi(number, &epoch) || !IsRun(run)) continue;
    const absl::StatusOr<bool> has = HasCheckpoint(run, step);
    const bool exported = !step && HasExport(run);
    if (!has.ok() && !exported && epoch > unseen_epoch) {
      unseen_epoch = epoch;
      *unseen = Annotate(has.status(), name);
    }
    const std::pair<bool, int64_t> known = {exported || (has.ok() && *has), epoch};
    if (known <= newest_epoch) continue;
    newest_epoch = known;
    newest = run;
  }
  if (!newest_epoch.first && !unseen->ok()) return *unseen;
  if (unseen_epoch < newest_epoch.second) *unseen = absl::OkStatus();  // of an older one nobody asks
  return newest;
}

// Of a folder as it is exported here or as the Hub has it. Empty: none that is known here.
std::string TokenizerIn(const std::string& folder) {
  for (const char* name : {"/tokenizer.json", "/original/tokenizer.model"}) {
    if (IsFile(folder + name)) return folder + name;
  }
  return "";
}

// eos_token_id, a number or a list of them; generation_config.json wins, as in transformers.
absl::Status AddEndIds(const std::string& folder, std::vector<int32_t>* ids) {
  for (const char* name : {"/generation_config.json", "/config.json"}) {
    if (!IsFile(folder + name)) continue;
    ASSIGN_OR_RETURN(const auto text, ReadFile(folder + name, kMostTextBytes));
    const auto json = ParseJsonTree(text);
    if (!json.ok()) return Annotate(json.status(), folder + name);
    if (!json->is_object() || !json->contains("eos_token_id") || (*json)["eos_token_id"].is_null()) continue;
    const Tree& end = (*json)["eos_token_id"];
    for (const Tree& id : end.is_array() ? end : Tree::array({end})) {
      const int64_t number = id.is_number_integer() ? id.get<int64_t>() : -1;
      if (number >= 0 && number <= INT32_MAX) ids->push_back(static_cast<int32_t>(number));
    }
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status LoadTokenizer(const std::string& path, Source* source) {
  ASSIGN_OR_RETURN(source->tokenizer, data::LoadTokenizer(path));
  if (const auto end = source->tokenizer->EndOfText()) source->end_ids.push_back(*end);
  return data::CheckFits(*source->tokenizer, source->model.vocab_size());
}

absl::Status OpenWeights(const std::string& folder, Source* source) {
  ASSIGN_OR_RETURN(auto opened, model::HfWeights::Open(folder, source->model));
  source->weights = [weights = std::make_shared<model::HfWeights>(std::move(opened))](
                        const std::string& name, const std::vector<int64_t>& shape, float* out) {
    return weights->Load(parallel::Unsharded(name, shape), out);
  };
  return absl::OkStatus();
}

absl::StatusOr<Source> OpenFolder(const Wanted& wanted, const std::string& folder) {
  Source source;
  source.what = folder;
  ASSIGN_OR_RETURN(source.model, model::ReadHfConfig(folder));
  const std::string tokenizer = wanted.tokenizer.empty() ? TokenizerIn(folder) : wanted.tokenizer;
  if (tokenizer.empty())
    return FieldError("--tokenizer", "",
                      absl::StrCat("is needed, for ", folder, " holds none: give 'byte', a tiktoken file or a tokenizer.json"));
  RETURN_IF_ERROR(LoadTokenizer(tokenizer, &source));
  RETURN_IF_ERROR(AddEndIds(folder, &source.end_ids));
  RETURN_IF_ERROR(OpenWeights(folder, &source));
  return source;
}

// The tokenizer that the recipe names, which must still be the one that the ids of the training came from.
absl::Status LoadTrainedTokenizer(const v1::CheckpointManifest& manifest, const std::string& given, Source* source) {
  const std::string path = given.empty() ? manifest.recipe().model().tokenizer_path() : given;
  absl::Status status = LoadTokenizer(path, source);
  if (absl::IsNotFound(status) && given.empty())
    return FieldError("--tokenizer", path, "is what the run was trained with and is not there: name where it is now",
                      absl::StatusCode::kNotFound);
  if (status.ok() && source->tokenizer->Identity() != manifest.tokenizer_identity())
    return FieldError("--tokenizer", path,
                      absl::StrCat("is not the one that the run was trained with (", manifest.recipe().model().tokenizer_path(),
                                   ", ", manifest.tokenizer_identity(), "): its ids mean other texts"));
  return status;
}

absl::StatusOr<int64_t> ChooseStep(const std::string& root, std::optional<int64_t> step) {
  ASSIGN_OR_RETURN(const auto steps, checkpoint::ListCheckpoints(root));
  if (steps.empty())
    return FieldError(kPath, root, "holds no committed checkpoint yet: `lego train` writes them every checkpoint.interval steps",
                      absl::StatusCode::kNotFound);
  if (!step) return steps.back();
  if (std::find(steps.begin(), steps.end(), *step) != steps.end()) return *step;
  return FieldError("--step", absl::StrCat(*step),
                    absl::StrCat("is no committed checkpoint of ", root, "; there are ", absl::StrJoin(steps, ", ")),
                    absl::StatusCode::kNotFound);
}

absl::StatusOr<Source> OpenRun(const Wanted& wanted, const std::string& run) {
  const absl::StatusOr<bool> any = HasCheckpoint(run, {});
  const std::string exported = launch::HuggingFacePath(run);
  // Checkpoints are often removed once there is an export, or are in a store of which nobody here has the keys.
  const bool only_export = !wanted.step && HasExport(run) && !(any.ok() && *any);
  if (only_export) {
    ASSIGN_OR_RETURN(Source source, OpenFolder(wanted, exported));
    if (!any.ok()) source.note = absl::StrCat("its checkpoints cannot be looked at: ", any.status().message());
    return source;
  }
  if (!any.ok()) return any.status();
  ASSIGN_OR_RETURN(const std::string root, launch::CheckpointsOfRun(run));
  ASSIGN_OR_RETURN(const auto step, ChooseStep(root, wanted.step));
  auto reader = checkpoint::CheckpointReader::Open(root, step, /*build_version=*/"");
  if (!reader.ok()) return Annotate(reader.status(), absl::StrCat("step ", step, " (--step takes another one)"));
  ASSIGN_OR_RETURN(const bool is_exported, launch::IsExported(run, root, step));
  Source source;
  source.what = absl::StrCat(run, " at step ", step, is_exported ? ", from its Hugging Face folder" : "");
  source.model = reader->manifest().model();
  const std::string beside = is_exported && wanted.tokenizer.empty() ? TokenizerIn(exported) : "";
  RETURN_IF_ERROR(beside.empty() ? LoadTrainedTokenizer(reader->manifest(), wanted.tokenizer, &source)
                                 : LoadTokenizer(beside, &source));
  if (is_exported) {
    RETURN_IF_ERROR(OpenWeights(exported, &source));
    return source;
  }
  source.weights = [reader = std::make_shared<checkpoint::CheckpointReader>(*std::move(reader))](
                       const std::string& name, const std::vector<int64_t>& shape, float* out) {
    return reader->ReadFloats(name, shape, out);
  };
  return source;
}

}  // namespace

absl::StatusOr<Source> OpenSource(const Wanted& wanted) {
  const std::string& path = wanted.path;
  if (!IsFolder(path)) {
    return FieldError(
        kPath, path,
        "is no folder; name a run directory (a recipe's job.dump_folder), the runs of a job, or a Hugging Face folder",
        absl::StatusCode::kNotFound);
  }
  const bool is_hugging_face = IsFile(path + "/config.json");
  if (is_hugging_face && wanted.step)
    return FieldError("--step", absl::StrCat(*wanted.step),
                      absl::StrCat("goes with a run directory, and ", path, " is a Hugging Face folder"));
  if (is_hugging_face) return OpenFolder(wanted, path);
  absl::Status unseen;
  ASSIGN_OR_RETURN(const std::string run, RunOf(path, wanted.step, &unseen));
  if (IsRun(run)) {
    ASSIGN_OR_RETURN(Source source, OpenRun(wanted, run));
    if (!unseen.ok()) source.note = absl::StrCat("a later attempt cannot be looked at: ", unseen.message());
    return source;
  }
  return FieldError(kPath, path,
                    "holds no model: neither config.json nor checkpoints/ nor hf/; a run has a checkpoint after "
                    "checkpoint.interval steps, with checkpoint.enable_checkpoint",
                    absl::StatusCode::kNotFound);
}

}  // namespace legoai::generate
