#include "server/cli/job_file.h"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/dynamic_message.h>

#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/data/dataset_facts.h"
#include "core/model/catalog.h"
#include "proto/errors.h"
#include "proto/read_file.h"
#include "proto/status.h"

namespace legoai::cli {
namespace {

namespace fs = std::filesystem;
using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::DynamicMessageFactory;
using google::protobuf::FieldDescriptorProto;

// Above every number that a section of the recipe has or may get.
constexpr int kFirstOwnNumber = 1000;
constexpr const char* kOwnSections[] = {"resources", "planning", "policy"};
constexpr size_t kMostDisplayName = 200;

// A message with the sections of a recipe, under their own numbers, and those of a job beside them: reading, unknown keys and
// command-line keys are then the reader's of every other file.
class JobFileType {
 public:
  JobFileType() : pool_(DescriptorPool::generated_pool()) {
    google::protobuf::FileDescriptorProto file;
    file.set_name("legoai/job_file.proto");
    file.set_syntax("proto3");
    file.add_dependency(v1::Recipe::descriptor()->file()->name());
    file.add_dependency(v1::JobSpec::descriptor()->file()->name());
    auto* message = file.add_message_type();
    message->set_name("JobFile");
    for (int i = 0; i < v1::Recipe::descriptor()->field_count(); ++i) {
      const auto* section = v1::Recipe::descriptor()->field(i);
      Add(section->name(), section->number(), section->message_type(), message);
    }
    int number = kFirstOwnNumber;
    for (const char* name : kOwnSections)
      Add(name, number++, v1::JobSpec::descriptor()->FindFieldByName(name)->message_type(), message);
    type_ = GOOGLE_CHECK_NOTNULL(pool_.BuildFile(file))->message_type(0);
    factory_.SetDelegateToGeneratedFactory(true);
  }

  std::unique_ptr<google::protobuf::Message> New() {
    return std::unique_ptr<google::protobuf::Message>(factory_.GetPrototype(type_)->New());
  }

 private:
  static void Add(const std::string& name, int number, const Descriptor* section, google::protobuf::DescriptorProto* message) {
    auto* field = message->add_field();
    field->set_name(name);
    field->set_number(number);
    field->set_label(FieldDescriptorProto::LABEL_OPTIONAL);
    field->set_type(FieldDescriptorProto::TYPE_MESSAGE);
    field->set_type_name("." + section->full_name());
  }

  DescriptorPool pool_;
  DynamicMessageFactory factory_;
  const Descriptor* type_ = nullptr;
};

absl::StatusOr<v1::JobSpec> Parse(const std::string& text, const parallel::Overrides& overrides) {
  JobFileType type;
  const auto file = type.New();
  std::vector<absl::Status> faults = parallel::ReadRecipeToml(text, overrides, file.get());
  v1::JobSpec spec;
  spec.mutable_recipe()->ParseFromString(file->SerializeAsString());
  spec.mutable_recipe()->DiscardUnknownFields();
  for (const char* name : kOwnSections) {
    const auto* from = file->GetDescriptor()->FindFieldByName(name);
    if (!file->GetReflection()->HasField(*file, from)) continue;
    const auto* to = v1::JobSpec::descriptor()->FindFieldByName(name);
    spec.GetReflection()->MutableMessage(&spec, to)->CopyFrom(file->GetReflection()->GetMessage(*file, from));
  }
  if (absl::Status status = parallel::ReadListedSchedule(spec.mutable_recipe()); !status.ok()) {
    faults.push_back(std::move(status));
    spec.mutable_recipe()->mutable_parallelism()->clear_pipeline_parallel_schedule_csv();
  }
  v1::Recipe full = spec.recipe();
  parallel::FillDefaults(&full);
  for (absl::Status& fault : parallel::RecipeFaults(full)) faults.push_back(std::move(fault));
  if (!faults.empty()) return AllFaults(faults);
  return spec;
}

// Workers have another working folder than who submits.
std::string Absolute(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

absl::Status ReadModel(v1::JobSpec* spec) {
  v1::ModelSection* section = spec->mutable_recipe()->mutable_model();
  if (section->name().empty())
    return FieldError("model.name", "", "is needed: a config.json, its folder, or a name of `lego models`");
  ASSIGN_OR_RETURN(auto model, model::ResolveModel(section->name()));
  if (!model.config_json().empty()) section->set_name(Absolute(section->name()));
  *spec->mutable_model() = std::move(model);
  return absl::OkStatus();
}

absl::Status ReadDataset(v1::JobSpec* spec) {
  v1::Training* training = spec->mutable_recipe()->mutable_training();
  ASSIGN_OR_RETURN(const auto path, data::DatasetPath(training->dataset_path()));
  training->set_dataset_path(Absolute(path));
  spec->mutable_dataset()->set_uri(training->dataset_path());
  std::error_code error;
  if (!fs::exists(training->dataset_path(), error)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto facts, data::DatasetFacts(training->dataset_path()));
  *spec->mutable_dataset() = facts;
  return absl::OkStatus();
}

void MakePathsAbsolute(v1::Recipe* recipe) {
  if (recipe->job().has_dump_folder()) recipe->mutable_job()->set_dump_folder(Absolute(recipe->job().dump_folder()));
  v1::ModelSection* model = recipe->mutable_model();
  if (!model->initial_load_path().empty()) model->set_initial_load_path(Absolute(model->initial_load_path()));
  if (!model->tokenizer_path().empty() && model->tokenizer_path() != "byte")
    model->set_tokenizer_path(Absolute(model->tokenizer_path()));
}

}  // namespace

absl::StatusOr<v1::JobSpec> ParseJobFile(const std::string& path, const parallel::Overrides& overrides) {
  ASSIGN_OR_RETURN(const auto text, ReadFileOf("JOB.toml", path, kMostTextBytes, "give the path of a TOML file"));
  auto spec = Parse(text, overrides);
  return spec.ok() ? spec : Annotate(spec.status(), path);
}

absl::StatusOr<v1::JobSpec> ReadJobFile(const std::string& path, const parallel::Overrides& overrides) {
  auto spec = ParseJobFile(path, overrides);
  if (!spec.ok()) return spec;
  absl::Status status = ReadModel(&*spec);
  if (status.ok()) status = ReadDataset(&*spec);
  if (!status.ok()) return Annotate(status, path);
  MakePathsAbsolute(spec->mutable_recipe());
  const std::string& description = spec->recipe().job().description();
  if (description.size() <= kMostDisplayName) spec->set_display_name(description);
  return spec;
}

std::string KeyOf(const std::string& request_field) {
  for (const char* prefix : {"spec.recipe.", "spec."}) {
    if (absl::StartsWith(request_field, prefix)) return request_field.substr(std::string_view(prefix).size());
  }
  return request_field;
}

}  // namespace legoai::cli
