#include "server/jobs/request_checks.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/data/tokenizer.h"
#include "core/model/catalog.h"
#include "core/model/hf_config.h"
#include "core/objectstore/s3_url.h"
#include "core/recipe/recipe.h"
#include "core/recipe/resolved_recipe.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/status.h"
#include "proto/text.h"
#include "proto/toml/toml.h"
#include "server/jobs/plan_base.h"
#include "server/jobs/submission.h"

namespace legoai::server {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kMostNameBytes = 200;
constexpr int64_t kMostNesting = 32;
constexpr int64_t kMostConstraints = 100;
constexpr size_t kMostConstraintBytes = 500;
constexpr char kConfigField[] = "config.json";

std::string Join(std::string_view path, std::string_view field) {
  return path.empty() ? std::string(field) : absl::StrCat(std::string(path), ".", std::string(field));
}

// Of one enum field, single or repeated, the first number that the enum does not have.
std::optional<int> UnknownNumber(const Message& message, const FieldDescriptor* field) {
  const auto* reflection = message.GetReflection();
  const int count = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
  for (int i = 0; i < count; ++i) {
    const int number =
        field->is_repeated() ? reflection->GetRepeatedEnumValue(message, field, i) : reflection->GetEnumValue(message, field);
    if (!field->enum_type()->FindValueByNumber(number)) return number;
  }
  return std::nullopt;
}

// What has a file's text: a config.json, and a schedule, which has nothing but actions (RecipeFaults).
bool IsFile(const FieldDescriptor* field) {
  return field->full_name() == "legoai.v1.Model.config_json" ||
         field->full_name() == "legoai.v1.Parallelism.pipeline_parallel_schedule_csv";
}

// Other texts are names, paths, or a sentence: nothing that has lines, or moves a terminal's cursor.
absl::Status CheckTexts(const Message& message, const FieldDescriptor* field, const std::string& name) {
  if (field->type() != FieldDescriptor::TYPE_STRING || IsFile(field)) return absl::OkStatus();
  const auto* reflection = message.GetReflection();
  const int count = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
  for (int i = 0; i < count; ++i) {
    std::string scratch;
    const std::string& text = field->is_repeated() ? reflection->GetRepeatedStringReference(message, field, i, &scratch)
                                                   : reflection->GetStringReference(message, field, &scratch);
    const std::string place = field->is_repeated() ? absl::StrCat(name, "[", i, "]") : name;
    RETURN_IF_ERROR(CheckPrintable(place, text));
  }
  return absl::OkStatus();
}

// How deep brackets of a JSON text are nested, those in strings left out: what reads and prints it calls itself for each level.
int64_t Nesting(std::string_view json) {
  int64_t depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    if (in_string && json[i] == '\\') {
      ++i;
    } else if (json[i] == '"') {
      in_string = !in_string;
    } else if (!in_string && (json[i] == '{' || json[i] == '[')) {
      deepest = std::max(deepest, ++depth);
    } else if (!in_string && (json[i] == '}' || json[i] == ']')) {
      --depth;
    }
  }
  return deepest;
}

// Only name and config_json are given.
bool IsUnread(const v1::Model& model) {
  v1::Model bare;
  bare.set_name(model.name());
  bare.set_config_json(model.config_json());
  return bare.SerializeAsString() == model.SerializeAsString();
}

absl::Status Adopt(std::string_view path, const v1::Model& truth, std::string_view source, v1::Model* model) {
  if (IsUnread(*model)) *model = truth;
  if (model->SerializeAsString() == truth.SerializeAsString()) return absl::OkStatus();
  const auto* type = v1::Model::descriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const Tree said = ToTree(*model, type->field(i)), is = ToTree(truth, type->field(i));
    if (said == is) continue;
    return FieldError(
        Join(path, type->field(i)->name()), said.dump(),
        absl::StrCat("its ", std::string(source), " says ", is.dump(), "; give only the name and config_json, or what they say"));
  }
  return FieldError(path, model->name(), absl::StrCat("is not what its ", std::string(source), " says"));
}

// The reader names keys "config.json: KEY"; in the request they are in `path`.config_json.
absl::Status UnderConfig(std::string_view path, const absl::Status& status) {
  const auto violation = GetFieldViolation(status);
  if (!violation) return Annotate(status, Join(path, "config_json"));
  std::string field = violation->field();
  if (absl::StartsWith(field, kConfigField)) field.replace(0, sizeof(kConfigField) - 1, "config_json");
  return FieldError(Join(path, field), violation->value(), violation->remedy());
}

absl::Status CheckCatalogModel(std::string_view path, v1::Model* model) {
  const v1::Model* known = model::FindModel(model->name());
  if (known == nullptr) {
    return FieldError(Join(path, "name"), model->name(),
                      absl::StrCat("is not in the catalog, and there is no config_json; the nearest name is ",
                                   Nearest(model->name(), model::ModelNames())));
  }
  model->set_name(known->name());  // it may be the Hub's
  return Adopt(path, *known, "entry in the catalog", model);
}

absl::Status CheckAbsolute(std::string_view field, const std::string& path) {
  if (path.empty() || path[0] == '/') return absl::OkStatus();
  return FieldError(field, path, "must be an absolute path: workers have another working folder");
}

// Keys that the planner takes from the recipe for all candidates.
const std::set<std::string>& FixedKeys() {
  static const auto* const keys =
      new std::set<std::string>{"model.name", "training.dataset_path", "training.global_batch_size", "training.seq_len"};
  return *keys;
}

absl::Status CheckConstraint(const std::string& field, const std::string& text, const v1::Recipe& recipe,
                             std::map<std::string, std::string>* seen) {
  if (text.size() > kMostConstraintBytes)
    return FieldError(field, "", absl::StrCat("is longer than ", kMostConstraintBytes, " bytes"));
  const size_t equals = text.find('=');
  if (equals == std::string::npos)
    return FieldError(field, text, "write KEY=VALUE, for instance parallelism.tensor_parallel_degree=2");
  const std::string key = text.substr(0, equals), value = text.substr(equals + 1);
  v1::Recipe with = recipe;
  absl::Status status = ApplyOverride(&with, key, value);
  if (status.ok()) status = parallel::CheckRecipe(with);
  if (!status.ok()) return FieldError(field, text, std::string(status.message()));
  if (FixedKeys().count(key) > 0 && with.SerializeAsString() != recipe.SerializeAsString())
    return FieldError(field, text, "contradicts the recipe, which fixes this key; change it there");
  const auto [before, first] = seen->emplace(key, value);
  if (!first && before->second != value)
    return FieldError(field, text, absl::StrCat("another constraint says ", key, "=", before->second));
  return absl::OkStatus();
}

constexpr char kShard[] = "parallelism.data_parallel_shard_degree";
constexpr char kPipeline[] = "parallelism.pipeline_parallel_degree";
constexpr char kMicrobatch[] = "parallelism.pipeline_parallel_microbatch_size";
constexpr char kLocalBatch[] = "training.local_batch_size";

// The byte tokenizer is known here; a file of tokens is the worker's to read.
absl::Status CheckTokenizer(const v1::JobSpec& spec) {
  const std::string& path = spec.recipe().model().tokenizer_path();
  if (path != "byte") return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto tokenizer, data::LoadTokenizer(path));
  const auto fault = GetFieldViolation(data::CheckFits(*tokenizer, spec.model().vocab_size()));
  if (!fault) return absl::OkStatus();
  return FieldError("spec.recipe.model.tokenizer_path", path, absl::StrCat("has ", fault->value(), ", ", fault->remedy()));
}

// The constraints of a job by key, and the recipe that they leave if all that is free is as small as can be.
class Smallest {
 public:
  explicit Smallest(const v1::JobSpec& spec) : spec_(spec), recipe_(spec.recipe()) {}

  absl::Status Make() {
    Shrink();
    for (int i = 0; i < spec_.planning().constraints_size(); ++i) {
      const std::string& text = spec_.planning().constraints(i);
      const size_t equals = text.find('=');
      places_[text.substr(0, equals)] = i;
      RETURN_IF_ERROR(ApplyOverride(&recipe_, text.substr(0, equals), text.substr(equals + 1)));
    }
    // Without a pipeline there is no microbatch to speak of: the planner leaves it at 1.
    auto* parallelism = recipe_.mutable_parallelism();
    const int64_t microbatch = parallelism->pipeline_parallel_microbatch_size();
    if (microbatch > 1 && places_.count(kPipeline) == 0) parallelism->set_pipeline_parallel_degree(2);
    if (places_.count(kMicrobatch) > 0 && places_.count(kLocalBatch) == 0)
      recipe_.mutable_training()->set_local_batch_size(microbatch);
    if (recipe_.activation_checkpoint().mode() == v1::AC_AUTO) recipe_.mutable_activation_checkpoint()->set_mode(v1::AC_NONE);
    return CheckShard();
  }

  absl::Status Check() const {
    const auto& p = recipe_.parallelism();
    int64_t world = 1;
    // One factor at a time: the product of arbitrary degrees may not fit.
    for (const int64_t degree : {p.data_parallel_replicate_degree(), p.data_parallel_shard_degree(), p.context_parallel_degree(),
                                 p.tensor_parallel_degree(), p.pipeline_parallel_degree()}) {
      const int64_t most = spec_.resources().slots() > 0 ? spec_.resources().slots() : kMostSlots;
      if (degree > most / world) return TooManyRanks(most);
      world *= degree;
    }
    parallel::Violation broken;
    const auto resolved = parallel::ResolvedRecipe::Create(recipe_, spec_.model(), world, &broken);
    return resolved.ok() ? absl::OkStatus() : Refuse(broken);
  }

 private:
  // All that the planner chooses and that a rule looks at.
  void Shrink() {
    auto* parallelism = recipe_.mutable_parallelism();
    parallelism->set_data_parallel_replicate_degree(1);
    parallelism->set_data_parallel_shard_degree(1);
    parallelism->set_context_parallel_degree(1);
    parallelism->set_tensor_parallel_degree(1);
    parallelism->set_pipeline_parallel_degree(1);
    parallelism->set_pipeline_parallel_microbatch_size(1);
    // CheckRecipe has looked at it by itself; which degrees and batches go with it, the planner finds.
    parallelism->clear_pipeline_parallel_schedule_csv();
    recipe_.mutable_training()->set_local_batch_size(1);
  }

  absl::Status CheckShard() const {
    if (recipe_.parallelism().data_parallel_shard_degree() != -1) return absl::OkStatus();
    return FieldError(Field(places_.at(kShard)), Text(places_.at(kShard)),
                      "every recipe of the planner names its shard degree: leave this constraint out, or give a number");
  }

  absl::Status TooManyRanks(int64_t most) const {
    return FieldError("spec.planning.constraints", absl::StrCat(spec_.planning().constraints_size(), " of them"),
                      absl::StrCat("their degrees need more than ", most,
                                   " ranks, which is the most that resources.slots gives: make a degree smaller"));
  }

  absl::Status Refuse(const parallel::Violation& violation) const {
    const auto place = places_.find(violation.field);
    if (place == places_.end())
      return FieldError(absl::StrCat("spec.recipe.", violation.field), violation.value, violation.remedy);
    return FieldError(Field(place->second), Text(place->second), violation.remedy);
  }

  std::string Field(int place) const { return absl::StrCat("spec.planning.constraints[", place, "]"); }
  const std::string& Text(int place) const { return spec_.planning().constraints(place); }

  const v1::JobSpec& spec_;
  v1::Recipe recipe_;
  std::map<std::string, int> places_;  // of constraints in the spec, by key
};

}  // namespace

absl::Status Under(std::string_view path, const absl::Status& status) {
  const auto violation = GetFieldViolation(status);
  if (!violation) return Annotate(status, path);
  return FieldError(Join(path, violation->field()), violation->value(), violation->remedy(), status.code());
}

absl::Status CheckKnown(const Message& message, std::string_view path) {
  const auto* reflection = message.GetReflection();
  const auto& unknown = reflection->GetUnknownFields(message);
  if (!unknown.empty()) {
    return FieldError(Join(path, absl::StrCat("#", unknown.field(0).number())), "",
                      absl::StrCat("the server knows no field of this number in ", message.GetDescriptor()->name(),
                                   "; who calls is of a newer version than the server"));
  }
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string name = Join(path, field->name());
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      if (const auto number = UnknownNumber(message, field))
        return FieldError(name, absl::StrCat(*number), absl::StrCat("is no value of ", field->enum_type()->name()));
    }
    RETURN_IF_ERROR(CheckTexts(message, field, name));
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const int count = field->is_repeated() ? reflection->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const Message& inner =
          field->is_repeated() ? reflection->GetRepeatedMessage(message, field, i) : reflection->GetMessage(message, field);
      const std::string inner_path = field->is_repeated() ? absl::StrCat(name, "[", i, "]") : name;
      RETURN_IF_ERROR(CheckKnown(inner, inner_path));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckModel(std::string_view path, v1::Model* model) {
  if (model->name().empty()) return FieldError(Join(path, "name"), "", "is needed: a name for people, or one of the catalog");
  RETURN_IF_ERROR(CheckText(Join(path, "name"), model->name(), kMostNameBytes));
  const std::string& config = model->config_json();
  if (config.empty()) return CheckCatalogModel(path, model);
  const std::string field = Join(path, "config_json");
  if (config.size() > kMostConfigBytes)
    return FieldError(field, absl::StrCat(config.size(), " bytes"),
                      absl::StrCat("must have at most ", kMostConfigBytes, " bytes"));
  if (Nesting(config) > kMostNesting)
    return FieldError(field, "", absl::StrCat("is nested deeper than ", kMostNesting, " levels: it is no model's config.json"));
  const auto read = model::ParseHfConfig(config, model->name());
  if (!read.ok()) return UnderConfig(path, read.status());
  return Adopt(path, *read, "config_json", model);
}

absl::Status CheckRecipe(std::string_view path, v1::Recipe* recipe) {
  if (absl::Status status = parallel::CheckRecipe(*recipe); !status.ok()) return Under(path, status);
  parallel::FillDefaults(recipe);
  return absl::OkStatus();
}

absl::Status CheckBase(std::string_view path, v1::Recipe* base) {
  if (absl::Status status = parallel::CheckRecipe(*base); !status.ok()) return Under(path, status);
  FillBaseDefaults(base);
  return absl::OkStatus();
}

absl::Status CheckPaths(std::string_view path, const v1::Recipe& recipe) {
  absl::Status status = CheckAbsolute(Join(path, "model.initial_load_path"), recipe.model().initial_load_path());
  if (status.ok() && recipe.model().tokenizer_path() != "byte")
    status = CheckAbsolute(Join(path, "model.tokenizer_path"), recipe.model().tokenizer_path());
  if (status.ok() && recipe.job().dump_folder() != parallel::DefaultRecipe().job().dump_folder())
    status = CheckAbsolute(Join(path, "job.dump_folder"), recipe.job().dump_folder());
  if (const std::string& folder = recipe.checkpoint().folder(); status.ok() && !folder.empty()) {
    constexpr size_t kMost = objectstore::kMostPrefixBytes - objectstore::kMostJobBytes;
    status = objectstore::ParseS3Url(Join(path, "checkpoint.folder"), folder, kMost).status();
  }
  return status;
}

absl::Status CheckConstraints(std::string_view path, const std::vector<std::string>& constraints, const v1::Recipe& recipe) {
  if (constraints.size() > kMostConstraints)
    return FieldError(path, absl::StrCat(constraints.size(), " of them"), absl::StrCat("give at most ", kMostConstraints));
  std::map<std::string, std::string> seen;
  for (size_t i = 0; i < constraints.size(); ++i) {
    const std::string field = absl::StrCat(std::string(path), "[", i, "]");
    RETURN_IF_ERROR(CheckConstraint(field, constraints[i], recipe, &seen));
  }
  return absl::OkStatus();
}

absl::Status CheckText(std::string_view path, std::string_view text, size_t most) {
  if (text.size() > most)
    return FieldError(path, absl::StrCat(text.size(), " bytes"), absl::StrCat("must have at most ", most, " bytes"));
  return CheckPrintable(path, text);
}

absl::Status CheckLegal(const v1::JobSpec& spec) {
  RETURN_IF_ERROR(CheckTokenizer(spec));
  Smallest smallest(spec);
  RETURN_IF_ERROR(smallest.Make());
  return smallest.Check();
}

}  // namespace legoai::server
