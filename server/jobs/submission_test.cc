#include "server/jobs/submission.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

#include "core/model/catalog.h"
#include "core/model/hf_config.h"
#include "core/recipe/recipe.h"
#include "proto/errors.h"
#include "proto/json/reflect.h"
#include "proto/testing/assert_ok.h"
#include "proto/testing/seeded_random.h"
#include "proto/text.h"
#include "server/jobs/request_checks.h"
#include "server/jobs/testing/example_submission.h"

namespace legoai::server {
namespace {

using testing::ExampleConfig;
using testing::ExampleSubmission;

using Change = std::function<void(v1::CreateJobRequest*)>;

// `field` is at fault after `change`, and the remedy says `part`.
void ExpectFault(const Change& change, const std::string& field, const std::string& part = "") {
  v1::CreateJobRequest request = ExampleSubmission();
  change(&request);
  const auto spec = CheckSubmission(request);
  ASSERT_FALSE(spec.ok()) << field;
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << spec.status();
  const auto violation = GetFieldViolation(spec.status());
  ASSERT_TRUE(violation) << spec.status();
  EXPECT_EQ(violation->field(), field) << spec.status();
  EXPECT_NE(violation->remedy().find(part), std::string::npos) << spec.status();
  EXPECT_LT(spec.status().message().size(), 4000u);
}

v1::JobSpec* Spec(v1::CreateJobRequest* request) { return request->mutable_spec(); }
v1::Training* Training(v1::CreateJobRequest* request) { return Spec(request)->mutable_recipe()->mutable_training(); }

TEST(Submission, DefaultsAreFilledIn) {
  ASSERT_OK_AND_ASSIGN(const auto spec, CheckSubmission(ExampleSubmission()));
  EXPECT_EQ(spec.display_name(), "tiny");
  EXPECT_EQ(spec.model().hidden_size(), 32);
  EXPECT_EQ(spec.model().SerializeAsString(), model::ParseHfConfig(ExampleConfig(), "tiny")->SerializeAsString());
  EXPECT_EQ(spec.recipe().training().dataset_path(), "/data/corpus.txt");
  EXPECT_EQ(spec.recipe().optimizer().name(), "AdamW");
  EXPECT_EQ(spec.recipe().training().global_batch_size(), 4);
  EXPECT_EQ(spec.resources().slots(), 0);
  EXPECT_EQ(spec.resources().min_slots(), 1);
  EXPECT_EQ(spec.resources().pool(), "default");
  EXPECT_FALSE(spec.resources().has_device_type());
  EXPECT_EQ(spec.planning().objective(), v1::STEP_TIME);
  EXPECT_EQ(spec.planning().budget_seconds(), 300);
  EXPECT_EQ(spec.planning().top(), 10);
  EXPECT_EQ(spec.policy().priority(), 0);
  EXPECT_EQ(spec.policy().max_restarts(), 3);
  // What was filled in is accepted as it is, and stays the same.
  v1::CreateJobRequest again = ExampleSubmission();
  *again.mutable_spec() = spec;
  ASSERT_OK_AND_ASSIGN(const auto second, CheckSubmission(again));
  EXPECT_EQ(second.SerializeAsString(), spec.SerializeAsString());
}

TEST(Submission, DefaultsAreThoseOfTheProto) {
  ASSERT_OK_AND_ASSIGN(const auto spec, CheckSubmission(ExampleSubmission()));
  for (const google::protobuf::Message* section :
       std::vector<const google::protobuf::Message*>{&spec.resources(), &spec.planning(), &spec.policy()}) {
    const auto* type = section->GetDescriptor();
    for (int i = 0; i < type->field_count(); ++i) {
      const auto* field = type->field(i);
      if (!field->options().HasExtension(v1::default_text)) continue;
      std::unique_ptr<google::protobuf::Message> other(section->New());
      ASSERT_TRUE(MergeText(field->name(), field->options().GetExtension(v1::default_text), other.get()).ok());
      EXPECT_EQ(ToTree(*section, field), ToTree(*other, field)) << field->full_name();
    }
  }
}

TEST(Submission, CatalogModelsNeedNoConfig) {
  v1::CreateJobRequest request = ExampleSubmission();
  request.mutable_spec()->mutable_model()->clear_config_json();
  request.mutable_spec()->mutable_model()->set_name("gpt2");
  ASSERT_OK_AND_ASSIGN(const auto spec, CheckSubmission(request));
  EXPECT_EQ(spec.model().hidden_size(), 768);
  *request.mutable_spec()->mutable_model() = model::Catalog()[0];
  EXPECT_TRUE(CheckSubmission(request).ok());
  request.mutable_spec()->mutable_model()->Clear();
  request.mutable_spec()->mutable_model()->set_name("openai-community/gpt2");
  EXPECT_EQ(CheckSubmission(request)->model().name(), "gpt2");
}

TEST(Submission, ModelsThatAreNotWhatTheySayAreRefused) {
  ExpectFault([](auto* r) { Spec(r)->mutable_model()->clear_name(); }, "spec.model.name", "is needed");
  ExpectFault([](auto* r) { Spec(r)->mutable_model()->set_name("a\nb"); }, "spec.model.name", "control");
  ExpectFault([](auto* r) { Spec(r)->mutable_model()->clear_config_json(); }, "spec.model.name", "catalog");
  // A path of the server is no model.
  ExpectFault(
      [](auto* r) {
        Spec(r)->mutable_model()->clear_config_json();
        Spec(r)->mutable_model()->set_name("examples/tiny-llama");
      },
      "spec.model.name", "catalog");
  ExpectFault(
      [](auto* r) {
        auto* model = Spec(r)->mutable_model();
        *model = *model::ParseHfConfig(ExampleConfig(), "tiny");
        model->set_num_hidden_layers(3);
      },
      "spec.model.num_hidden_layers", "config_json says 2");
  ExpectFault(
      [](auto* r) {
        *Spec(r)->mutable_model() = model::Catalog()[0];
        Spec(r)->mutable_model()->set_vocab_size(7);
      },
      "spec.model.vocab_size", "catalog says");
}

TEST(Submission, UnknownArchitecturesAreRefusedInTheReadersWords) {
  const std::string config = R"({"architectures": ["MambaForCausalLM"], "model_type": "mamba"})";
  const auto reader = GetFieldViolation(model::ParseHfConfig(config, "tiny").status());
  ASSERT_TRUE(reader);
  ExpectFault([&](auto* r) { Spec(r)->mutable_model()->set_config_json(config); }, "spec.model.config_json: architectures",
              reader->remedy());
  ExpectFault([](auto* r) { Spec(r)->mutable_model()->set_config_json("{"); }, "spec.model.config_json");
  const std::string deep(1 << 19, '[');
  ExpectFault([&](auto* r) { Spec(r)->mutable_model()->set_config_json("{\"vocab_size\": " + deep); }, "spec.model.config_json",
              "nested");
  ExpectFault([](auto* r) { Spec(r)->mutable_model()->set_config_json(std::string(2 << 20, ' ')); }, "spec.model.config_json",
              "at most");
}

TEST(Submission, BracketsInTextAreNoNesting) {
  v1::CreateJobRequest request = ExampleSubmission();
  std::string config = ExampleConfig();
  config.insert(1, "\"note\": \"\\\"" + std::string(100, '[') + "\", ");
  request.mutable_spec()->mutable_model()->set_config_json(config);
  const auto spec = CheckSubmission(request);
  EXPECT_TRUE(spec.ok()) << spec.status();
}

TEST(Submission, RecipesAreChecked) {
  ExpectFault([](auto* r) { Training(r)->clear_global_batch_size(); }, "spec.recipe.training.global_batch_size", "is needed");
  ExpectFault([](auto* r) { Training(r)->set_global_batch_size(-1); }, "spec.recipe.training.global_batch_size", "is needed");
  ExpectFault([](auto* r) { Training(r)->set_global_batch_size(0); }, "spec.recipe.training.global_batch_size", "at least 1");
  ExpectFault([](auto* r) { Training(r)->clear_seq_len(); }, "spec.recipe.training.seq_len", "is needed");
  ExpectFault([](auto* r) { Training(r)->set_seq_len(0); }, "spec.recipe.training.seq_len");
  ExpectFault([](auto* r) { Training(r)->set_dataset_path("/data/other.txt"); }, "spec.recipe.training.dataset_path", "uri");
  ExpectFault([](auto* r) { Spec(r)->mutable_recipe()->mutable_optimizer()->set_name("Lion"); }, "spec.recipe.optimizer.name");
  ExpectFault([](auto* r) { Spec(r)->mutable_recipe()->mutable_parallelism()->set_expert_parallel_degree(2); },
              "spec.recipe.parallelism.expert_parallel_degree", "not supported yet");
  ExpectFault([](auto* r) { Spec(r)->mutable_recipe()->mutable_job()->set_dump_folder("runs/a"); }, "spec.recipe.job.dump_folder",
              "absolute");
  // What a job adds to it must not be too long either.
  const auto folder = [](size_t prefix_bytes) { return "s3://bucket/" + std::string(prefix_bytes, 'x'); };
  ExpectFault([&](auto* r) { Spec(r)->mutable_recipe()->mutable_checkpoint()->set_folder(folder(637)); },
              "spec.recipe.checkpoint.folder", "at most 636");
  v1::Recipe longest = parallel::DefaultRecipe();
  longest.mutable_checkpoint()->set_folder(folder(636) + "/" + std::string(26, 'J') + "/epoch-9223372036854775807");
  EXPECT_EQ(parallel::CheckRecipe(longest), absl::OkStatus());
  ExpectFault([](auto* r) { Spec(r)->mutable_recipe()->mutable_model()->set_tokenizer_path("a.model"); },
              "spec.recipe.model.tokenizer_path", "absolute");
  ExpectFault(
      [](auto* r) {
        Spec(r)->mutable_recipe()->mutable_activation_checkpoint()->set_mode(static_cast<v1::ActivationCheckpointMode>(9));
      },
      "spec.recipe.activation_checkpoint.mode", "no value");
}

Change Constrained(std::vector<std::string> constraints) {
  return [constraints](auto* r) {
    for (const auto& constraint : constraints) Spec(r)->mutable_planning()->add_constraints(constraint);
  };
}

// What `lego train` would refuse on any number of ranks.
TEST(Submission, JobsThatNoRecipeCanTrainAreRefused) {
  ExpectFault(
      [](auto* r) {
        Spec(r)->mutable_model()->clear_config_json();
        Spec(r)->mutable_model()->set_name("gpt2");
        Training(r)->set_seq_len(2048);
      },
      "spec.recipe.training.seq_len", "at most 1024");
  auto config = [](const char* from, const char* to) {
    return [=](auto* r) {
      std::string* text = Spec(r)->mutable_model()->mutable_config_json();
      text->replace(text->find(from), std::string(from).size(), to);
    };
  };
  ExpectFault(config("\"vocab_size\": 256", "\"vocab_size\": 100"), "spec.recipe.model.tokenizer_path", "vocab_size of 100");
  ExpectFault(Constrained({"optimizer.lr=0.1", "parallelism.pipeline_parallel_degree=3"}), "spec.planning.constraints[1]",
              "2 layers");
}

TEST(Submission, ConstraintsThatNoRecipeMeetsAreRefused) {
  const std::string first = "spec.planning.constraints[0]";
  ExpectFault(Constrained({"parallelism.tensor_parallel_degree=3"}), first, "use one of 1, 2, 4, with other");
  ExpectFault(Constrained({"parallelism.pipeline_parallel_degree=3"}), first, "2 layers");
  ExpectFault(Constrained({"parallelism.data_parallel_shard_degree=-1"}), first, "give a number");
  ExpectFault(Constrained({"parallelism.expert_parallel_degree=2"}), first, "not supported");
  ExpectFault(Constrained({"training.local_batch_size=3"}), "spec.recipe.training.global_batch_size", "multiple of 3");
  ExpectFault(Constrained({"parallelism.pipeline_parallel_microbatch_size=2", "training.local_batch_size=1"}), first,
              "must divide");
  ExpectFault(Constrained({"parallelism.data_parallel_shard_degree=4096", "parallelism.tensor_parallel_degree=4096",
                           "parallelism.data_parallel_replicate_degree=1000000000"}),
              "spec.planning.constraints", "more than 4096 ranks");
  ExpectFault(
      [](auto* r) {
        Spec(r)->mutable_resources()->set_slots(2);
        Constrained({"parallelism.data_parallel_shard_degree=4"})(r);
      },
      "spec.planning.constraints", "more than 2 ranks");
}

// Nothing is refused of what the planner may find.
TEST(Submission, ConstraintsThatSomeRecipeMeetsAreTaken) {
  for (const std::vector<std::string>& constraints : std::vector<std::vector<std::string>>{
           {"parallelism.tensor_parallel_degree=2", "parallelism.pipeline_parallel_degree=2"},
           {"parallelism.pipeline_parallel_microbatch_size=2"},
           {"parallelism.pipeline_parallel_microbatch_size=2", "training.local_batch_size=4"},
           {"parallelism.data_parallel_shard_degree=4", "activation_checkpoint.mode=full"},
           {"parallelism.data_parallel_replicate_degree=2", "parallelism.data_parallel_shard_degree=2"},
           {"training.local_batch_size=4", "training.mixed_precision_param=float32"}}) {
    v1::CreateJobRequest request = ExampleSubmission();
    Constrained(constraints)(&request);
    EXPECT_TRUE(CheckSubmission(request).ok()) << constraints[0] << ": " << CheckSubmission(request).status();
  }
}

TEST(Submission, DatasetsAreNamedForAllHosts) {
  ExpectFault([](auto* r) { Spec(r)->mutable_dataset()->clear_uri(); }, "spec.dataset.uri");
  ExpectFault([](auto* r) { Spec(r)->mutable_dataset()->set_uri("corpus.txt"); }, "spec.dataset.uri", "absolute");
  ExpectFault([](auto* r) { Spec(r)->mutable_dataset()->set_uri("s3://bucket/corpus"); }, "spec.dataset.uri", "not supported");
  ExpectFault([](auto* r) { Spec(r)->mutable_dataset()->set_sha256("abc"); }, "spec.dataset.sha256", "64");
  ExpectFault([](auto* r) { Spec(r)->mutable_dataset()->set_bytes(-1); }, "spec.dataset.bytes");
  v1::CreateJobRequest request = ExampleSubmission();
  request.mutable_spec()->mutable_dataset()->set_uri("file:///data/corpus.txt");
  EXPECT_TRUE(CheckSubmission(request).ok());
}

TEST(Submission, ConstraintsMustBePossible) {
  const std::string field = "spec.planning.constraints[0]";
  auto add = [](const char* text) { return [text](auto* r) { Spec(r)->mutable_planning()->add_constraints(text); }; };
  ExpectFault(add("nonsense"), field, "KEY=VALUE");
  ExpectFault(add("parallelism.tensor_paralel_degree=2"), field, "tensor_parallel_degree");
  ExpectFault(add("parallelism.tensor_parallel_degree=0"), field, "tensor_parallel_degree");
  ExpectFault(add("parallelism.tensor_parallel_degree=two"), field);
  ExpectFault(add("activation_checkpoint.mode=some"), field, "full");
  ExpectFault(add("training.seq_len=32"), field, "fixes this key");
  ExpectFault(
      [](auto* r) {
        Spec(r)->mutable_planning()->add_constraints("parallelism.tensor_parallel_degree=2");
        Spec(r)->mutable_planning()->add_constraints("parallelism.tensor_parallel_degree=4");
      },
      "spec.planning.constraints[1]", "tensor_parallel_degree=2");
  v1::CreateJobRequest request = ExampleSubmission();
  for (const char* text :
       {"parallelism.tensor_parallel_degree=2", "training.seq_len=16", "training.mixed_precision_param=float32"})
    request.mutable_spec()->mutable_planning()->add_constraints(text);
  EXPECT_TRUE(CheckSubmission(request).ok()) << CheckSubmission(request).status();
}

TEST(Submission, NumbersHaveRanges) {
  auto resources = [](auto* r) { return Spec(r)->mutable_resources(); };
  ExpectFault([&](auto* r) { resources(r)->set_slots(-1); }, "spec.resources.slots");
  ExpectFault([&](auto* r) { resources(r)->set_slots(1 << 20); }, "spec.resources.slots");
  ExpectFault([&](auto* r) { resources(r)->set_min_slots(0); }, "spec.resources.min_slots");
  ExpectFault([&](auto* r) { resources(r)->set_min_slots(4097); }, "spec.resources.min_slots",
              "between 1 and 4096: no job has more");
  ExpectFault([&](auto* r) { resources(r)->set_slots(4097); }, "spec.resources.slots", "no job has more");
  ExpectFault(
      [&](auto* r) {
        resources(r)->set_slots(2);
        resources(r)->set_min_slots(3);
      },
      "spec.resources.min_slots", "must not exceed");
  ExpectFault([&](auto* r) { resources(r)->set_pool("../x"); }, "spec.resources.pool");
  ExpectFault([&](auto* r) { resources(r)->set_device_type("h100-sxm-81"); }, "spec.resources.device_type", "h100-sxm-80");
  for (double budget : {0.0, -1.0, 3601.0, std::nan(""), std::numeric_limits<double>::infinity()})
    ExpectFault([&](auto* r) { Spec(r)->mutable_planning()->set_budget_seconds(budget); }, "spec.planning.budget_seconds");
  for (int64_t top : {0, 1001}) ExpectFault([&](auto* r) { Spec(r)->mutable_planning()->set_top(top); }, "spec.planning.top");
  ExpectFault([](auto* r) { Spec(r)->mutable_policy()->set_priority(1001); }, "spec.policy.priority");
  ExpectFault([](auto* r) { Spec(r)->mutable_policy()->set_max_restarts(-1); }, "spec.policy.max_restarts");
}

TEST(Submission, TheEnvelopeIsChecked) {
  ExpectFault([](auto* r) { r->set_parent("default"); }, "parent", "projects/default");
  ExpectFault([](auto* r) { r->clear_spec(); }, "spec", "is needed");
  ExpectFault([](auto* r) { r->set_request_id("short"); }, "request_id", "8 to 64");
  ExpectFault([](auto* r) { r->set_request_id(std::string(65, 'a')); }, "request_id", "8 to 64");
  ExpectFault([](auto* r) { r->set_request_id("with a space"); }, "request_id", "8 to 64");
  ExpectFault([](auto* r) { Spec(r)->mutable_model()->set_config_json(std::string(5 << 20, ' ')); }, "spec", "at most");
  ExpectFault([](auto* r) { Spec(r)->set_display_name(std::string(201, 'a')); }, "spec.display_name", "at most");
}

TEST(Submission, WhatIsNotKnownIsRefused) {
  ExpectFault([](auto* r) { r->GetReflection()->MutableUnknownFields(r)->AddVarint(77, 1); }, "#77", "newer");
  ExpectFault(
      [](auto* r) {
        auto* training = Training(r);
        training->GetReflection()->MutableUnknownFields(training)->AddLengthDelimited(500, "x");
      },
      "spec.recipe.training.#500", "newer");
  ExpectFault([](auto* r) { Spec(r)->mutable_planning()->set_objective(static_cast<v1::Objective>(5)); },
              "spec.planning.objective", "no value");
}

// Whatever bytes arrive: an answer, and what is accepted is complete.
// Every text that is set in `message`, by its path.
void ForEachText(
    google::protobuf::Message* message, const std::string& path,
    const std::function<void(google::protobuf::Message*, const google::protobuf::FieldDescriptor*, const std::string&)>& visit) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  message->GetReflection()->ListFields(*message, &fields);
  for (const auto* field : fields) {
    const std::string name = path.empty() ? field->name() : path + "." + field->name();
    if (field->is_repeated()) continue;
    if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE)
      ForEachText(message->GetReflection()->MutableMessage(message, field), name, visit);
    if (field->type() == google::protobuf::FieldDescriptor::TYPE_STRING) visit(message, field, name);
  }
}

TEST(Submission, NoTextHasControlCharacters) {
  v1::CreateJobRequest request = ExampleSubmission();
  request.mutable_spec()->mutable_recipe()->mutable_model()->set_tokenizer_path("/data/tokenizer.model");
  request.mutable_spec()->mutable_recipe()->mutable_model()->set_initial_load_path("/data/weights");
  request.mutable_spec()->mutable_recipe()->mutable_job()->set_description("for people");
  request.mutable_spec()->set_display_name("a name");
  request.mutable_spec()->mutable_resources()->set_pool("default");
  int texts = 0;
  ForEachText(&request, "", [&](google::protobuf::Message* message, const auto* field, const std::string& name) {
    if (field->name() == "config_json") return;  // a file, which has lines
    const std::string before = message->GetReflection()->GetString(*message, field);
    for (const std::string& bad : {std::string("\0", 1), std::string("\x1b[31m"), std::string("\n"), std::string("\xc2\x9b")}) {
      message->GetReflection()->SetString(message, field, before + bad);
      const absl::Status status = CheckSubmission(request).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
      EXPECT_TRUE(IsPrintable(std::string(status.message()))) << name;
      ASSERT_TRUE(GetFieldViolation(status)) << status;
      EXPECT_EQ(GetFieldViolation(status)->field(), name);
    }
    message->GetReflection()->SetString(message, field, before);
    ++texts;
  });
  EXPECT_GE(texts, 8);
  request = ExampleSubmission();
  request.mutable_spec()->mutable_planning()->add_constraints("parallelism.tensor_parallel_degree=1\x1b");
  EXPECT_EQ(GetFieldViolation(CheckSubmission(request).status())->field(), "spec.planning.constraints[0]");
}

TEST(Submission, RandomBytesAreAnsweredOrMadeComplete) {
  SeededRandom random;
  const std::string good = ExampleSubmission("request-1").SerializeAsString();
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = good;
    for (int flips = 1 + random() % 4; flips > 0; --flips) bytes[random() % bytes.size()] = static_cast<char>(random());
    v1::CreateJobRequest request;
    if (!request.ParseFromString(bytes)) continue;
    const auto spec = CheckSubmission(request);
    if (!spec.ok()) {
      EXPECT_TRUE(GetFieldViolation(spec.status())) << spec.status();
      continue;
    }
    EXPECT_TRUE(parallel::CheckRecipe(spec->recipe()).ok());
    EXPECT_GT(spec->model().num_hidden_layers(), 0);
  }
}

TEST(Submission, TheDigestTellsContentsApart) {
  const v1::CreateJobRequest request = ExampleSubmission("request-1");
  v1::CreateJobRequest other = request;
  other.set_request_id("request-2");
  EXPECT_EQ(SubmissionDigest(request), SubmissionDigest(other));
  other.mutable_spec()->mutable_recipe()->mutable_training()->set_seed(1);
  EXPECT_NE(SubmissionDigest(request), SubmissionDigest(other));
  EXPECT_EQ(SubmissionDigest(request).size(), 64u);
}

}  // namespace
}  // namespace legoai::server
